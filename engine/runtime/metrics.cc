// Every metric is a function that turns one micro-batch into a short list of sums, a function that
// adds two such lists, and a function that computes the result from the final sums (table
// kMetrics). Sums that are counts are added at once; others are kept per micro-batch. At the end
// all ranks gather the lists of all ranks and add them in the order of micro-batches, so that all
// have the same bits for any plan.
#include "engine/runtime/metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/layers/losses.h"
#include "engine/layers/targets.h"
#include "engine/runtime/records.h"

namespace strata {
namespace {

using T = at::Tensor;
using Sums = std::vector<double>;

/// The key of metrics that are counts, which are exact in any order. Sums of other numbers are
/// added in the order of micro-batches, for equal bits.
constexpr int64_t kCounts = -1;

Sums ToSums(const T& tensor) {
  const T host = tensor.to(at::kCPU, at::kDouble).contiguous().flatten();
  const double* values = host.const_data_ptr<double>();
  return {values, values + host.numel()};
}

/// Scores of shape (labels, classes), and the labels, without those that are ignored.
struct Classes {
  T scores;
  T labels;
};

/// Rearranges output and target to rows of scores, one per label. For targets that are
/// probabilities, the label is the class with the highest one. BCELoss and BCEWithLogitsLoss have a
/// single score for two classes; it is compared with a threshold, which becomes the score of the
/// other class.
Classes ClassesOf(const LayerSpec& loss, const T& output, const T& target) {
  if (const std::optional<double> threshold = ClassThreshold(loss)) {
    const T flat = output.flatten();
    return {at::stack({at::full_like(flat, *threshold), flat}, 1),
            TwoClassLabels(output, target).flatten()};
  }
  const int64_t dim =
      ClassDim(output.sizes(), target, GivenClassDim(loss), loss.scripted ? "" : loss.type);
  const T scores = output.movedim(dim, -1).flatten(0, -2);
  if (target.is_floating_point()) {
    return {scores, target.movedim(dim, -1).flatten(0, -2).argmax(1)};
  }
  const Value* ignored = loss.args.Find("ignore_index");
  const T labels = target.flatten().to(at::kLong);
  const T counted = labels.ne(ignored ? ignored->as_int() : kNoLabel).nonzero().flatten();
  const Classes classes = {scores.index_select(0, counted), labels.index_select(0, counted)};
  RequireIndices(classes.labels, scores.size(1), "label", "classes");
  return classes;
}

/// Throws ConfigError unless output and target have equal shapes.
void RequireSameShape(const char* metric, const T& output, const T& target) {
  if (output.sizes() == target.sizes()) return;
  throw ConfigError(Str(metric, ": expected a target in the output's shape ",
                        FormatShape(output.sizes()), ", got ", FormatShape(target.sizes())));
}

Sums Top(const Classes& of, int64_t count) {
  const int64_t most = std::min(count, of.scores.size(1));
  const T best = std::get<1>(of.scores.topk(most, 1));
  const T right = best.eq(of.labels.unsqueeze(1)).any(1).sum();
  return {right.item<double>(), static_cast<double>(of.labels.numel())};
}

/// Counts how often each label (row) was predicted as each class (column).
Sums Confusion(const Classes& of) {
  const int64_t classes = of.scores.size(1);
  return ToSums(at::bincount(of.labels * classes + of.scores.argmax(1), {}, classes * classes));
}

/// For each column of the targets: their number, the first target, the distance of their mean from
/// the first, the sum of squared distances from the mean, and the sum of squared errors. Sums of
/// squares of the targets themselves would lose precision if targets are large compared with their
/// differences.
constexpr size_t kMoments = 5;

Sums Moments(const T& output, const T& target) {
  const T t = target.to(at::kDouble).reshape({target.size(0), -1});
  const T y = output.to(at::kDouble).reshape_as(t);
  const T count = at::full({t.size(1)}, static_cast<double>(t.size(0)), t.options());
  const T first = t.select(0, 0), shifted = t - first, mean = shifted.mean(0);
  return ToSums(
      at::stack({count, first, mean, (shifted - mean).square().sum(0), (t - y).square().sum(0)}));
}

/// Merges the Moments() of further samples into those of `sums` (Chan et al., 1979).
void AddMoments(Sums& sums, const Sums& more) {
  const size_t columns = sums.size() / kMoments;
  for (size_t c = 0; c < columns; ++c) {
    const auto at = [&](size_t row) { return row * columns + c; };
    const double count = sums[at(0)], added = more[at(0)], all = count + added;
    // Distance between the means.
    const double apart = more[at(1)] - sums[at(1)] + more[at(2)] - sums[at(2)];
    sums[at(0)] = all;
    sums[at(2)] += apart * (added / all);
    sums[at(3)] += more[at(3)] + apart * apart * (count * added / all);
    sums[at(4)] += more[at(4)];
  }
}

Sums Errors(const T& output, const T& target) {
  const T t = target.to(at::kDouble);
  return {(output.to(at::kDouble) - t).abs().sum().item<double>(), static_cast<double>(t.numel())};
}

/// The sum of -log of the labels' probabilities, and the number of labels.
Sums LogLikelihood(const LayerSpec& loss, const Classes& of) {
  const T scores = of.scores.to(at::kDouble), labels = of.labels.unsqueeze(1);
  T minus = -scores.gather(1, labels);
  if (loss.type != "NLLLoss") minus += scores.logsumexp(1, true);
  return {minus.sum().item<double>(), static_cast<double>(of.labels.numel())};
}

/// True if exp(loss) is the perplexity, because the loss is a plain mean of -log probabilities.
/// This is assumed of a function of the script.
bool IsMeanOfLogs(const LayerSpec& loss) {
  if (loss.scripted) return true;
  const auto is = [&](const char* name, const Value& usual) {
    const Value* given = loss.args.Find(name);
    return !given || *given == usual;
  };
  return is("reduction", "mean") && is("label_smoothing", 0.0) && is("weight", Value());
}

double Ratio(const Sums& sums) { return sums[1] == 0 ? 0 : sums[0] / sums[1]; }

int64_t ClassesIn(const Sums& table) {
  return std::llround(std::sqrt(static_cast<double>(table.size())));
}

/// The F1 score of the second of two classes; otherwise the mean over all classes that occur as a
/// label or as a prediction.
double F1(const Sums& table) {
  const int64_t classes = ClassesIn(table);
  double sum = 0, present = 0;
  for (int64_t c = classes == 2 ? 1 : 0; c < classes; ++c) {
    double labels = 0, taken = 0;
    for (int64_t other = 0; other < classes; ++other) {
      labels += table[c * classes + other];
      taken += table[other * classes + c];
    }
    if (labels + taken == 0) continue;
    sum += 2 * table[c * classes + c] / (labels + taken);
    ++present;
  }
  return present == 0 ? 0 : sum / present;
}

/// The mean of R2 over the columns. A column with constant targets counts 1 if all predictions are
/// exact, else 0, as in scikit-learn.
double R2(const Sums& sums) {
  const size_t columns = sums.size() / kMoments;
  double sum = 0;
  for (size_t c = 0; c < columns; ++c) {
    const double spread = sums[3 * columns + c], errors = sums[4 * columns + c];
    if (spread == 0) {
      sum += errors == 0 ? 1 : 0;
    } else {
      sum += 1 - errors / spread;
    }
  }
  return sum / static_cast<double>(columns);
}

Value Table(const Sums& table) {
  const int64_t classes = ClassesIn(table);
  Value::List rows;
  for (int64_t c = 0; c < classes; ++c) {
    Value::List row;
    for (int64_t p = 0; p < classes; ++p) {
      row.emplace_back(static_cast<int64_t>(std::llround(table[c * classes + p])));
    }
    rows.emplace_back(std::move(row));
  }
  return rows;
}

void AddSums(Sums& sums, const Sums& more) {
  std::ranges::transform(sums, more, sums.begin(), std::plus());
}

using Read = Sums (*)(const LayerSpec& loss, const T& output, const T& target);

struct Metric {
  const char* name;
  bool counts;  ///< the sums are whole numbers
  Read read;
  Value (*result)(const Sums&);
  /// Adds the sums of further samples.
  void (*add)(Sums& sums, const Sums& more) = AddSums;
};

constexpr Metric kMetrics[] = {
    {"accuracy", true,
     [](const LayerSpec& loss, const T& y, const T& t) { return Top(ClassesOf(loss, y, t), 1); },
     [](const Sums& sums) { return Value(Ratio(sums)); }},
    {"top5", true,
     [](const LayerSpec& loss, const T& y, const T& t) { return Top(ClassesOf(loss, y, t), 5); },
     [](const Sums& sums) { return Value(Ratio(sums)); }},
    {"f1", true,
     [](const LayerSpec& loss, const T& y, const T& t) { return Confusion(ClassesOf(loss, y, t)); },
     [](const Sums& sums) { return Value(F1(sums)); }},
    {"confusion", true,
     [](const LayerSpec& loss, const T& y, const T& t) { return Confusion(ClassesOf(loss, y, t)); },
     Table},
    {"r2", false,
     [](const LayerSpec&, const T& y, const T& t) {
       RequireSameShape("r2", y, t);
       return Moments(y, t);
     },
     [](const Sums& sums) { return Value(R2(sums)); }, AddMoments},
    {"mae", false,
     [](const LayerSpec&, const T& y, const T& t) {
       RequireSameShape("mae", y, t);
       return Errors(y, t);
     },
     [](const Sums& sums) { return Value(Ratio(sums)); }},
    {"perplexity", false,
     [](const LayerSpec& loss, const T& y, const T& t) {
       return LogLikelihood(loss, ClassesOf(loss, y, t));
     },
     [](const Sums& sums) { return Value(std::exp(Ratio(sums))); }},
};

}  // namespace

struct Metrics::Entry {
  std::string name;
  bool counts = false;
  std::function<Sums(const Tensors& output, const Tensors& target)> read;  // null: exp(loss)
  std::function<Value(const Sums& sums, double loss)> result;
  void (*add)(Sums& sums, const Sums& more) = AddSums;
};

Metrics::Metrics(const Job& job, const LayerSpec& loss, LayerScript& script) {
  for (const MetricSpec& metric : job.eval.metrics) {
    Entry entry;
    entry.name = metric.name;
    const auto known = std::ranges::find(kMetrics, metric.name, &Metric::name);
    if (metric.function.id >= 0) {
      std::shared_ptr<Loss> function = script.BuildLoss(metric.AsLoss());
      entry.read = [function](const Tensors& output, const Tensors& target) -> Sums {
        const LossValue value = function->Compute(output, target);
        return {value.sum.item<double>(), value.weight};
      };
      entry.result = [](const Sums& sums, double) { return sums[0] / LossDivisor(sums[1]); };
    } else if (metric.name == "perplexity" && IsMeanOfLogs(loss)) {
      entry.result = [](const Sums&, double loss) { return std::exp(loss); };
    } else {
      entry.counts = known->counts;
      entry.add = known->add;
      entry.read = [loss, read = known->read](const Tensors& output, const Tensors& target) {
        return read(loss, output.at(0), target.at(0));
      };
      entry.result = [result = known->result](const Sums& sums, double) { return result(sums); };
    }
    entries_.push_back(std::move(entry));
  }
}

Metrics::~Metrics() = default;

void Metrics::Read(int m, const Tensors& output, const Tensors& target) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!entry.read) continue;
    const Sums more = entry.read(output, target);
    const int64_t place = entry.counts ? kCounts : first_ + m;
    const auto [sums, is_first] = sums_.try_emplace({static_cast<int64_t>(i), place}, more);
    if (!is_first) entry.add(sums->second, more);
  }
}

Value Metrics::Take(double loss, bool speaks, Transport& transport) {
  Value::List own;
  for (const auto& [key, sums] : sums_) {
    if (!speaks) break;
    own.emplace_back(Value::List{key.first, key.second, Value::List(sums.begin(), sums.end())});
  }
  sums_.clear();
  // Items of all ranks, ordered by (entry, micro-batch). Counts come from several ranks under one
  // key.
  std::multimap<std::pair<int64_t, int64_t>, Value> all;
  for (const std::string& text : transport.Gather(Value(own).ToJson())) {
    const Value ranks = Value::FromJson(text);
    for (const Value& item : ranks.as_list()) {
      const Value::List& parts = item.as_list();
      all.emplace(std::pair(parts[0].as_int(), parts[1].as_int()), parts[2]);
    }
  }
  std::map<int64_t, Sums> totals;
  for (const auto& [key, values] : all) {
    Sums more;
    for (const Value& number : values.as_list()) more.push_back(NumberOf(number));
    const auto [total, is_first] = totals.try_emplace(key.first, more);
    if (!is_first) entries_[static_cast<size_t>(key.first)].add(total->second, more);
  }
  Value result = Value::MakeMap();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto total = totals.find(static_cast<int64_t>(i));
    if (entries_[i].read && total == totals.end()) continue;  // no data were read
    result.Set(entries_[i].name,
               entries_[i].result(total == totals.end() ? Sums() : total->second, loss));
  }
  return result;
}

}  // namespace strata
