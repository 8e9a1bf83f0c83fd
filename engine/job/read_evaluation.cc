#include "engine/job/read_evaluation.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/job/data_source.h"
#include "engine/layers/targets.h"

namespace strata {
namespace {

/// Reads eval.metrics: {"r2", "mae", my=function(output, target) ... end}.
std::vector<MetricSpec> ReadMetrics(const JobKeys& keys, const Value& given) {
  std::vector<MetricSpec> metrics;
  std::vector<std::string> known;
  for (const auto& type : MetricTypes()) known.push_back(type.first);
  const Call call = keys.CallFor("eval.metrics", given);
  for (const Value& name : call.positional) {
    if (!name.is_string() || std::ranges::find(known, name.as_string()) == known.end()) {
      keys.Refuse(Str("eval.metrics expects names (", Join(known, ", "),
                      ") or name=function(output, target); got ", name.Describe(),
                      name.is_string() ? DidYouMean(name.as_string(), known) : ""));
    }
    metrics.push_back({name.as_string()});
  }
  for (const auto& [name, function] : call.named) {
    for (const char* own : {"loss", "accuracy", "samples", "parts"}) {
      if (name != own) continue;
      keys.Refuse(Str("eval.metrics: an evaluation has a number \"", name,
                      "\" of its own; give the ", "function another name"));
    }
    if (!function.is_function()) {
      keys.Refuse(Str("eval.metrics.", name, " expects a function(output, target); got ",
                      function.Describe()));
    }
    metrics.push_back({name, function.as_function()});
  }
  return metrics;
}

/// Reads eval.samples: {"Once upon", "The ", every=100, tokens=50}, or a single text.
SamplesSpec ReadSamples(const JobKeys& keys, const Value& given) {
  if (given.is_null()) return {};
  Call call = keys.CallFor("eval.samples", given.is_string() ? Value(Value::List{given}) : given);
  SamplesSpec samples;
  for (const Value& prompt : call.positional) {
    if (!prompt.is_string() || prompt.as_string().empty()) {
      keys.Refuse(
          Str("eval.samples expects texts to go on with, then options; got ", prompt.Describe()));
    }
    samples.prompts.push_back(prompt.as_string());
  }
  if (samples.prompts.empty()) keys.Refuse("eval.samples expects a text to go on with");
  FieldTable fields = TextFields();
  fields.push_back(Field::Int("every", "steps between two times; none = behind each evaluation")
                       .AtLeast(1)
                       .Optional());
  call.positional.clear();
  samples.options = Canonicalize(fields, call);
  samples.every = CountOf(samples.options["every"]);
  samples.options.Erase("every");
  return samples;
}

}  // namespace

EvalSpec ReadEval(const JobKeys& keys, const LayerSpec& loss) {
  const Value given = keys.Table("eval", EvalFields());
  const Value table = given.is_null() ? Canonicalize(EvalFields(), {}) : given;
  EvalSpec eval = {EveryOf(table["every"]), CountOf(table["batch"]), table["metric"].as_string()};
  if (const Value& dim = table["class_dim"]; !dim.is_null()) eval.class_dim = dim.as_int();
  if (eval.class_dim && !loss.scripted) {
    keys.Refuse(Str("eval.class_dim is for losses that are functions; ",
                    IsOfClasses(loss)
                        ? Str("write nn.", loss.type, "{class_dim = ", *eval.class_dim, "}")
                        : Str("the loss ", loss.ToString(), " has no classes")));
  }
  eval.metrics = ReadMetrics(keys, table["metrics"]);
  const bool has_perplexity = std::ranges::any_of(
      eval.metrics, [](const MetricSpec& metric) { return metric.name == "perplexity"; });
  if (has_perplexity && !loss.scripted && !IsOfClasses(loss)) {
    keys.Refuse(Str("eval.metrics: perplexity is of probabilities of classes, which the loss ",
                    loss.ToString(), " has not"));
  }
  eval.samples = ReadSamples(keys, table["samples"]);
  if (eval.metric == "auto") {
    const bool classes = loss.type == "CrossEntropyLoss" || loss.type == "NLLLoss";
    eval.metric = classes ? "accuracy" : "none";
  }
  return eval;
}

MonitorSpec ReadMonitor(const JobKeys& keys, const char* key, const std::string& monitor,
                        const Value& mode, const EvalSpec& eval) {
  constexpr std::string_view kTest = "test.";
  std::vector<std::string> names = {"test.loss"};
  if (eval.metric != "none") names.push_back(Str(kTest, eval.metric));
  for (const MetricSpec& metric : eval.metrics) {
    if (metric.name != "confusion") names.push_back(Str(kTest, metric.name));
  }
  if (std::ranges::find(names, monitor) == names.end()) {
    keys.Refuse(Str(key, ": no evaluation gives \"", monitor, "\"", DidYouMean(monitor, names),
                    "; there is ", Join(names, ", ")));
  }
  const std::string name = monitor.substr(kTest.size());
  const auto metric = std::ranges::find(MetricTypes(), name, &std::pair<std::string, bool>::first);
  const bool is_known = metric != MetricTypes().end() || name == "loss";
  if (mode.is_null() && !is_known) {
    keys.Refuse(Str(key, ": nobody knows whether more or less of ", monitor, " is better: say ",
                    Split(key, '.')[0], ".mode = \"max\" or \"min\""));
  }
  MonitorSpec spec = {.monitor = monitor};
  spec.larger_is_better = metric != MetricTypes().end() && metric->second;
  if (!mode.is_null()) spec.larger_is_better = mode.as_string() == "max";
  return spec;
}

MonitorSpec ReadStop(const JobKeys& keys, const Job& job) {
  const Value table = keys.Table("stop", StopFields());
  if (table.is_null()) return {};
  MonitorSpec spec =
      ReadMonitor(keys, "stop.monitor", table["monitor"].as_string(), table["mode"], job.eval);
  spec.patience = table["patience"].as_int();
  spec.min_delta = table["min_delta"].as_double();
  return spec;
}

void CheckEpochs(const JobKeys& keys, const Job& job) {
  const char* key = job.eval.every == kEveryEpoch   ? "eval.every"
                    : job.save.every == kEveryEpoch ? "save.every"
                                                    : nullptr;
  const bool cannot_train = job.train_data.kind.empty();  // CheckTrainable() tells
  if (!key || cannot_train || HasEnd(job.train_data)) return;
  keys.Refuse(
      Str(key, " = \"epoch\" needs data.train with an end; a function has none: give steps"));
}

}  // namespace strata
