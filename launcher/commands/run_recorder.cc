// Converts a recorded training to messages and back.
#include "launcher/commands/run_recorder.h"

#include "engine/base/text.h"
#include "engine/runtime/records.h"
#include "launcher/process/channel.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

constexpr const char* kPlanned = "planned";
constexpr const char* kStep = "step";
constexpr const char* kParameters = "parameters";
constexpr const char* kContent = "content";

PlannedRun PlannedFrom(const Value& value) {
  auto number = [&](const char* key) { return static_cast<int>(value[key].as_int()); };
  return {.name = value["name"].as_string(),
          .steps = value["steps"].as_int(),
          .ranks = number("ranks"),
          .replicas = number("replicas"),
          .sharing = number("sharing"),
          .processes = number("processes"),
          .threads = number("threads"),
          .in_order = value["in_order"].as_bool(),
          .device = value["device"].as_string(),
          .unordered = value["unordered"].as_string(),
          .rounding = value["rounding"].as_string()};
}

}  // namespace

Value PlannedMessage(const PlannedRun& run) {
  return TypedMessage(kPlanned).Set(kContent, Value::MakeMap({{"name", run.name},
                                                              {"steps", run.steps},
                                                              {"ranks", run.ranks},
                                                              {"replicas", run.replicas},
                                                              {"sharing", run.sharing},
                                                              {"processes", run.processes},
                                                              {"threads", run.threads},
                                                              {"in_order", run.in_order},
                                                              {"device", run.device},
                                                              {"unordered", run.unordered},
                                                              {"rounding", run.rounding}}));
}

Value VerifiedStepMessage(const StepNumbers& result) {
  return TypedMessage(kStep).Set(kContent, VerifiedStepValue(result));
}

Value ParametersMessage(const std::vector<TensorDigest>& parameters) {
  return TypedMessage(kParameters).Set(kContent, DigestsValue(parameters));
}

void RunRecorder::OnMessage(int rank, const Value& message) {
  const std::string& type = message["type"].as_string();
  if (type == kProgressMessage) {
    if (rank <= 0) terminal_.ErrorLine("strata: " + message["line"].as_string());
    return;
  }
  const Value& content = message[kContent];
  if (type == kPlanned) {
    planned_ = PlannedFrom(content);
    record_.name = planned_.name;
  }
  if (type == kStep) record_.steps.push_back(VerifiedStepFrom(content));
  if (type == kParameters) record_.parameters = DigestsFrom(content);
  terminal_.Status(
      Str("training with ", record_.name, ": step ", record_.steps.size(), "/", planned_.steps));
}

void RunRecorder::OnOutput(int rank, bool is_error, std::string_view line) {
  terminal_.Line(Str(planned_.processes > 1 ? Str("rank ", rank, ": ") : "", line), is_error);
}

}  // namespace strata::launcher
