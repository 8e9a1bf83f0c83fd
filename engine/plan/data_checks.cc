// Checks of the data against the layers, the loss and the metrics, and what the data tells about
// the loss.
#include "engine/plan/data_checks.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/cost/layer_costs.h"
#include "engine/job/data_source.h"
#include "engine/layers/connections.h"
#include "engine/layers/inputs.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"
#include "engine/layers/targets.h"

namespace strata {
namespace {

using Shapes = MicroBatchShapes;

/// Returns the first micro-batch of the training's data function and checks its number of rows. The
/// check is left out if the job gives its input's shape or does not train.
FirstBatch FirstOfTraining(const Job& job, int64_t rows, Script& script) {
  const FunctionRef& function = job.train_data.function;
  FirstBatch first = script.InferData(function, job.seed);
  const TensorSpecs& input = first.input;
  if (input.empty() || input[0].shape.empty()) {
    throw ConfigError(Str(Place(function.where), "the data function's input must be a tensor with ",
                          "a batch dim, or several, got ", ToString(input)));
  }
  if (job.input || !job.trains || input[0].shape[0] == rows) return first;
  throw ConfigError(Str(Place(function.where), "the data function gives micro-batch 0 with ",
                        Plural(input[0].shape[0], "row"), ", the job has micro-batches of ",
                        Plural(rows, "row")));
}

/// The input of a micro-batch; {} if neither the job nor its data tells it.
TensorSpecs MicroBatchInput(const Job& job, int64_t rows, const std::optional<FirstBatch>& first) {
  if (job.input) return WithRows({*job.input}, rows);
  if (first) return first->input;
  const DataSpec& data = HasEnd(job.train_data) || job.trains ? job.train_data : job.test_data;
  return HasEnd(data) ? WithRows(FactsOf(data).inputs, rows) : TensorSpecs{};
}

/// The outputs of all layers for a micro-batch. If a script's data has whole numbers where floats
/// are needed, which happens easily, the error says how to convert them.
std::vector<TensorSpecs> OutputsFor(const Job& job, const TensorSpecs& input, Script* script) {
  try {
    return InferLayers(job.layers, input, script);
  } catch (const ConfigError& error) {
    const bool is_scripts = AnySource(job.train_data, [](std::string_view kind) {
      return kind == "function" || kind == "dataset";
    });
    const bool is_whole =
        std::string_view(error.what()).find("float32, got int64") != std::string::npos;
    if (job.input || !is_scripts || !is_whole) throw;
    throw ConfigError(Str(error.what(), kWholeNumbers));
  }
}

bool TakesLabels(const LayerSpec& loss, const TensorSpec& target) {
  return IsOfClasses(loss) && !IsFloating(target.dtype);
}

/// The number of classes that the output has. REQUIRES: CheckLoss() has accepted the labels.
int64_t KnownClasses(const LayerSpec& loss, const TensorSpec& output, const TensorSpec& labels) {
  const std::vector<int> fitting =
      FittingClassDims(output.shape, labels.shape, /*are_labels=*/true, GivenClassDim(loss));
  return output.shape.at(static_cast<size_t>(fitting.at(0)));
}

std::string ClassesText(const TensorSpecs& output, int64_t classes) {
  return Str("the output ", ToString(output), " has ", classes,
             classes == 1 ? " class" : " classes");
}

/// Refuses labels for which the output has no class. `classes` is the number of different labels.
void CheckLabels(const LayerSpec& loss, const DataSpec& data, int64_t classes,
                 const TensorSpecs& output, const TensorSpec& labels) {
  if (!TakesLabels(loss, labels)) return;
  const int64_t known = KnownClasses(loss, output[0], labels);
  const bool last_is_ignored = loss.args["ignore_index"] == Value(classes - 1);
  if (classes - (last_is_ignored ? 1 : 0) <= known) return;
  throw ConfigError(Str(Place(data.where), "the labels of strata.data.", data.kind, " are 0 to ",
                        classes - 1, ", but ", ClassesText(output, known)));
}

std::string TableText(const Job& job, int64_t rows) {
  const int first = HasDocuments(job.layers) ? 1 : 0;
  return Str("layer ", first, " ", job.layers[static_cast<size_t>(first)].ToString(), " has ",
             Plural(rows, "row"));
}

/// Refuses tokens for which the first layer has no row.
void CheckTokens(const Job& job, const DataSpec& data) {
  const int64_t rows = TableRows(job);
  if (data.kind != "tokens" || rows == 0) return;
  const int64_t tokens = data.options["vocabulary"].as_int();
  if (tokens <= rows) return;
  throw ConfigError(Str(Place(data.where), "strata.data.tokens gives ", tokens,
                        " different tokens, but ", TableText(job, rows)));
}

/// Refuses tokens and labels that a data function gave, if the first layer has no row or the output
/// no class for them.
void CheckValues(const Job& job, const LayerSpec& loss, const FunctionRef& function,
                 const FirstBatch& first, const TensorSpecs& output) {
  const auto refuse = [&](const char* what, int64_t value, const std::string& why) {
    throw ConfigError(Str(Place(function.where), "the data function gives micro-batch 0 the ", what,
                          " ", value, ", but ", why));
  };
  const int64_t rows = TableRows(job);
  for (const int64_t token : first.tokens) {
    if (rows == 0 || (token >= 0 && token < rows)) continue;
    refuse("token", token, TableText(job, rows));
  }
  if (first.target.empty() || !TakesLabels(loss, first.target[0])) return;
  const int64_t known = KnownClasses(loss, output[0], first.target[0]);
  for (const int64_t label : first.labels) {
    const bool is_ignored = job.loss.args["ignore_index"] == Value(label);
    if (is_ignored || (label >= 0 && label < known)) continue;
    refuse("label", label, ClassesText(output, known));
  }
}

/// The names of the job's metrics that count correct and wrong classes, such as accuracy.
std::vector<std::string> ClassMetrics(const Job& job) {
  std::vector<std::string> names;
  if (job.test_data.kind.empty()) return names;
  if (job.eval.metric == "accuracy") names.push_back(job.eval.metric);
  for (const MetricSpec& metric : job.eval.metrics) {
    const bool is_of_classes = metric.name == "accuracy" || metric.name == "top5" ||
                               metric.name == "f1" || metric.name == "confusion";
    if (metric.function.id < 0 && is_of_classes) names.push_back(metric.name);
  }
  return names;
}

/// Refuses metrics of classes if the loss does not tell which class is correct. Losses of classes
/// have checked their target themselves. BCELoss and BCEWithLogitsLoss separate two classes by a
/// threshold, whatever the dtype of the target. With a loss function of the script the target must
/// be labels of classes. Other losses are refused.
void CheckClassMetrics(const Job& job, const LayerSpec& loss, const std::string& where,
                       const TensorSpecs& output, const TensorSpecs& target) {
  const std::vector<std::string> metrics = ClassMetrics(job);
  if (metrics.empty() || target.empty() || output.empty()) return;
  if (IsOfClasses(loss) || ClassThreshold(loss)) return;
  const std::string eval = Str(Place(where), "eval: ", metrics[0]);
  if (!loss.scripted || !AreLabels(target[0])) {
    throw ConfigError(
        Str(eval, " needs labels, or a loss of scores such as BCEWithLogitsLoss; the ",
            "targets are ", ToString(target), ", and what is right by ", loss.ToString(),
            " is not known: eval.metrics takes a function(output, ", "target)"));
  }
  const std::optional<int64_t> given = GivenClassDim(loss);
  const std::vector<int64_t>&scores = output[0].shape, &labels = target[0].shape;
  const std::vector<int> fitting = FittingClassDims(scores, labels, /*are_labels=*/true, given);
  if (fitting.size() == 1) return;
  if (!fitting.empty()) {
    throw ConfigError(Str(eval, ": ", SeveralClassDims(scores, FormatShape(labels), fitting, "")));
  }
  throw ConfigError(Str(eval, " needs labels in the shape of the output without the dim of its ",
                        "classes (", given ? std::to_string(*given) : "1 or the last",
                        "); the output is ", output[0].ToString(), ", the target ",
                        target[0].ToString()));
}

/// Refuses metrics of numbers (r2, mae) unless output and target have the same shape, since they
/// compare each element of the output with the target's at the same place.
void CheckNumberMetrics(const Job& job, const std::string& where, const TensorSpecs& output,
                        const TensorSpecs& target) {
  if (job.test_data.kind.empty() || target.empty() || output.empty()) return;
  if (output[0].shape == target[0].shape) return;
  for (const MetricSpec& metric : job.eval.metrics) {
    const bool is_of_numbers = metric.name == "r2" || metric.name == "mae";
    if (!is_of_numbers || metric.function.id >= 0) continue;
    throw ConfigError(Str(Place(where), "eval.metrics: ", metric.name,
                          " needs a target in the output's shape; the output is ",
                          output[0].ToString(), ", the target ", target[0].ToString()));
  }
}

/// Refuses a loss of classes with a single class, because it is 0 whatever the layers give.
void CheckClasses(const LayerSpec& loss, const std::string& where, const TensorSpecs& output) {
  if (loss.scripted || !IsOfClasses(loss) || output.size() != 1) return;
  const auto rank = static_cast<int64_t>(output[0].shape.size());
  const std::optional<int64_t> dim = rank == 2 ? 1 : GivenClassDim(loss);
  if (!dim || *dim >= rank || *dim <= -rank) return;  // CheckLoss() refuses such a dim
  if (output[0].shape[static_cast<size_t>((*dim + rank) % rank)] != 1) return;
  throw ConfigError(Str(Place(where), "the loss ", loss.ToString(), " of one class is always 0; ",
                        "nn.BCEWithLogitsLoss takes one score and a target of 0 or 1"));
}

/// Checks the metrics and the loss for this output and target.
void CheckTarget(const Job& job, const LayerSpec& loss, const std::string& where,
                 const TensorSpecs& output, const TensorSpecs& target, Script* script) {
  if (loss.type.empty()) return;
  CheckClassMetrics(job, loss, where, output, target);
  CheckNumberMetrics(job, where, output, target);
  CheckClasses(loss, where, output);
  if (loss.scripted) {
    if (script != nullptr) script->TryLoss(loss, output, target);
    return;
  }
  if (TakesSeveralTargets(loss)) {
    return CheckTargets(loss, job.layers, output, target);
  }
  if (target.size() != 1) {
    throw ConfigError(Str(Place(where), "the loss ", loss.ToString(),
                          " takes one target, the data gives ", ToString(target)));
  }
  CheckLoss(loss, job.layers, output, target[0]);
}

/// Does what CheckTarget() does for data with an end. If a column of numbers in a table may have
/// been meant as classes, the error says so.
void CheckTargetOfData(const Job& job, const LayerSpec& loss, const DataSpec& data,
                       const TensorSpecs& output, const TensorSpecs& target, Script* script) {
  try {
    CheckTarget(job, loss, data.where, output, target, script);
  } catch (const ConfigError& error) {
    const bool is_column = FindOption(data.options, "task") == Value("auto") &&
                           target.size() == 1 && IsFloating(target[0].dtype);
    if (!is_column || !IsOfClasses(loss)) throw;
    throw ConfigError(Str(error.what(), "; task = \"classes\" in strata.data.csv makes classes of ",
                          "a column of numbers"));
  }
}

/// The output of the layers for an input. For the planned input it is known already.
TensorSpecs OutputFor(const Job& job, const TensorSpecs& input, const Shapes& shapes,
                      Script* script) {
  const bool is_planned = input == shapes.input;
  return is_planned ? shapes.outputs.back() : InferLayers(job.layers, input, script).back();
}

/// The output of the layers for a micro-batch of data with an end. If the layers refuse it, the
/// error names the shapes of the data's samples.
TensorSpecs OutputOfData(const Job& job, const DataSpec& data, const DataFacts& facts, int64_t rows,
                         const Shapes& shapes, Script* script) {
  if (job.input) return shapes.outputs.back();
  try {
    return OutputFor(job, WithRows(facts.inputs, rows), shapes, script);
  } catch (const ConfigError& error) {
    throw ConfigError(Str(Place(data.where), "samples of strata.data.", data.kind, " are ",
                          ToString(facts.inputs), ": ", error.what()));
  }
}

/// Calls the script's own metrics once, which would otherwise fail only in the first evaluation.
void TryMetrics(const Job& job, const TensorSpecs& output, const TensorSpecs& target,
                Script* script) {
  if (job.loss.type.empty() || script == nullptr) return;
  for (const MetricSpec& metric : job.eval.metrics) {
    if (metric.function.id >= 0) script->TryLoss(metric.AsLoss(), output, target);
  }
}

/// Checks the first micro-batch of a data function against the layers and the loss.
void CheckFirst(const Job& job, const LayerSpec& loss, const FunctionRef& function,
                const FirstBatch& first, const Shapes& shapes, Script* script) {
  const TensorSpecs output = OutputFor(job, first.input, shapes, script);
  CheckTarget(job, loss, function.where, output, first.target, script);
  CheckValues(job, loss, function, first, output);
  if (function.id == job.test_data.function.id) TryMetrics(job, output, first.target, script);
}

/// The target of a micro-batch, if the job's data tells it and it is a single tensor.
std::optional<TensorSpec> PlannedTarget(const Job& job, int64_t rows, const Shapes& shapes) {
  TensorSpecs targets;
  if (shapes.first) {
    if (shapes.first->input == shapes.input) targets = shapes.first->target;
  } else {
    const DataSpec& data = HasEnd(job.train_data) ? job.train_data : job.test_data;
    if (HasEnd(data)) targets = WithRows(FactsOf(data).targets, rows);
  }
  return targets.size() == 1 ? std::optional(targets[0]) : std::nullopt;
}

/// Refuses a BatchNorm that would train on a single value per channel. Only layers of the list are
/// checked; those within other layers report it when they run. `help` says how to give it more
/// values.
void CheckBatchNorms(const Job& job, const TensorSpecs& input,
                     const std::vector<TensorSpecs>& outputs, const char* help) {
  const std::vector<TensorSpecs> inputs = LayerInputs(job.layers, input, outputs);
  for (size_t i = 0; i < job.layers.size(); ++i) {
    const LayerSpec& layer = job.layers[i];
    const bool is_norm = !layer.scripted && layer.type.starts_with("BatchNorm");
    if (!is_norm || inputs[i][0].elements() != inputs[i][0].shape[1]) continue;
    throw ConfigError(Str("layer ", LayerNumber(job.layers, static_cast<int>(i)), " ",
                          layer.ToString(), " needs more than one value per channel in training; ",
                          help));
  }
}

/// Checks that the layers accept the last micro-batch of an epoch, if it has fewer rows. Data that
/// is padded (collate = "pad") is left out, since planning does not know its lengths. `passed` is
/// an input that the layers have accepted; if the last micro-batch is the same, nothing is done.
void CheckLastRows(const Job& job, const DataSpec& data, const DataFacts& facts, int64_t rows,
                   Script* script, TensorSpecs& passed) {
  const int64_t left = facts.samples % rows;
  if (left == 0 || FindOption(data.options, "collate") == Value("pad")) return;
  TensorSpecs last = WithRows(job.input ? TensorSpecs{*job.input} : facts.inputs, left);
  if (last == passed) return;
  try {
    const std::vector<TensorSpecs> outputs = InferLayers(job.layers, last, script);
    if (&data == &job.train_data) {  // the training's data comes here only if the job trains
      CheckBatchNorms(job, last, outputs, "data:take(n) leaves out the last samples");
    }
    passed = std::move(last);
  } catch (const ConfigError& error) {
    throw ConfigError(Str(Place(data.where), Plural(facts.samples, "sample"), " of strata.data.",
                          data.kind, " in micro-batches of ", rows, " leave a last one of ",
                          Plural(left, "row"), ": ", error.what()));
  }
}

/// Refuses the mask of collate = "pad" as the mask of PyTorch's attention: the first is true where
/// there are values, the second where there are none.
void CheckMask(const Job& job, const DataSpec& data) {
  const LayerSpec& first = job.layers.front();
  if (first.scripted || FindOption(data.options, "collate") != Value("pad")) return;
  const std::string_view type = std::string_view(first.type).substr(0, first.type.find('.'));
  const auto names = InputNames(type);
  const bool is_mask = names.size() > 1 && names[1].ends_with("padding_mask");
  if (!is_mask && type != "MultiheadAttention") return;
  throw ConfigError(Str(Place(data.where),
                        "collate = \"pad\" gives a mask that is true where there ",
                        "are values; layer 0 ", type, " takes one that is true where there are ",
                        "none: function(x, mask) return x, mask:logical_not() end before it"));
}

bool IsPackedData(const DataSpec& data) {
  return HasEnd(data) && AnySource(data, [](std::string_view kind) { return kind == "pack"; });
}

/// Checks that the layers know of the documents of packed data.
void CheckDocuments(const Job& job) {
  for (const DataSpec* data : {&job.train_data, &job.test_data}) {
    if (!IsPackedData(*data) || HasDocuments(job.layers)) continue;
    throw ConfigError(Str(Place(data->where), "packed data gives tokens and their places in the ",
                          "documents, which strata.documents{} as the first layer takes; layer 0 ",
                          "is ", job.layers.front().ToString()));
  }
}

/// Checks that the loss leaves out the padding of packed rows, whose labels are kNoLabel.
void CheckPackedLoss(const Job& job, const DataSpec& data) {
  const LayerSpec& loss = job.loss;
  const bool is_checked = IsPackedData(data) && !loss.scripted && !loss.type.empty();
  if (!is_checked || loss.args["ignore_index"] == Value(kNoLabel)) return;
  throw ConfigError(Str(Place(loss.where), "rows of packed data end with targets of ", kNoLabel,
                        ", which the loss ", loss.ToString(), " would count; it expects a ",
                        "CrossEntropyLoss or NLLLoss with ignore_index = ", kNoLabel,
                        ", or a function that leaves them out"));
}

}  // namespace

MicroBatchShapes InferShapes(const Job& job, const Batch& batch, Script* script) {
  CheckDocuments(job);
  Shapes shapes;
  const int64_t rows = batch.micro_batch_size;
  if (job.train_data.kind == "function" && script != nullptr) {
    shapes.first = FirstOfTraining(job, rows, *script);
  }
  shapes.input = MicroBatchInput(job, rows, shapes.first);
  if (!shapes.input.empty()) shapes.outputs = OutputsFor(job, shapes.input, script);
  return shapes;
}

int64_t TableRows(const Job& job) {
  const LayerSpec& first = job.layers[HasDocuments(job.layers) && job.layers.size() > 1 ? 1 : 0];
  return first.type == "Embedding" && !first.scripted ? first.args["num_embeddings"].as_int() : 0;
}

void FindClassDim(const Job& job, const Shapes& shapes, Plan& plan) {
  if (job.loss.scripted && job.eval.class_dim) {
    // What an int cannot hold stays out of range, so that it is refused.
    plan.class_dim = static_cast<int>(std::clamp<int64_t>(
        *job.eval.class_dim, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
  }
  if (shapes.outputs.empty()) return;
  const bool counts_classes = job.loss.scripted && !ClassMetrics(job).empty();
  if (!IsOfClasses(job.loss) && !counts_classes) return;
  const TensorSpec& output = shapes.outputs.back().at(0);
  const std::optional<int64_t> given =
      job.loss.scripted ? job.eval.class_dim : GivenClassDim(job.loss);
  const std::optional<TensorSpec> target = PlannedTarget(job, plan.batch.micro_batch_size, shapes);
  if (!target || (counts_classes && !AreLabels(*target))) return;
  const std::vector<int> fitting =
      FittingClassDims(output.shape, target->shape, AreLabels(*target), given);
  // An output (N, C) does not tell where later ones of more dims have their classes.
  if (fitting.size() != 1 || output.shape.size() < 3) return;
  plan.class_dim = static_cast<int>(given ? *given : fitting[0] == 1 ? 1 : -1);
  plan.class_dim_text =
      Str("the classes are in dim ", fitting[0], " of the output ", FormatShape(output.shape),
          given ? Str(", as class_dim = ", *given, " says")
                : Str(", which the labels ", FormatShape(target->shape), " do not have"));
}

void CheckData(const Job& job, const Plan& plan, const Shapes& shapes, Script* script) {
  const LayerSpec loss = PlannedLoss(job, plan);
  if (job.trains && !loss.type.empty()) {
    CheckBatchNorms(job, shapes.input, shapes.outputs, "make batch.micro_batch_size larger");
  }
  if (shapes.first && job.trains) {
    CheckFirst(job, loss, job.train_data.function, *shapes.first, shapes, script);
  }
  if (job.test_data.kind == "function" && script != nullptr) {
    const FunctionRef& function = job.test_data.function;
    CheckFirst(job, loss, function, script->InferData(function, job.seed), shapes, script);
  }
  TensorSpecs passed;
  for (const DataSpec* data : {&job.train_data, &job.test_data}) {
    const bool is_test = data == &job.test_data;
    if (!HasEnd(*data) || (!is_test && !job.trains)) continue;
    CheckTokens(job, *data);
    CheckMask(job, *data);
    CheckPackedLoss(job, *data);
    const DataFacts facts = FactsOf(*data);
    const int64_t rows = plan.batch.micro_batch_size;
    const TensorSpecs output = OutputOfData(job, *data, facts, rows, shapes, script);
    const bool has_own_rows = is_test && job.eval.batch > 0;
    CheckLastRows(job, *data, facts, has_own_rows ? job.eval.batch : rows, script, passed);
    if (job.loss.type.empty() || FindOption(data->options, "targets") == Value(false)) continue;
    const TensorSpecs target = WithRows(facts.targets, rows);
    CheckTargetOfData(job, loss, *data, output, target, script);
    if (data == &job.test_data) TryMetrics(job, output, target, script);
    if (data->kind == "text" || target.size() != 1) continue;
    CheckLabels(loss, *data, facts.classes, output, target[0]);
  }
}

}  // namespace strata
