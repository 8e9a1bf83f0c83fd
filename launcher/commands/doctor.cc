// The command `strata doctor`, which shows what this machine offers and what is missing.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/gpu.h"
#include "engine/base/text.h"
#include "engine/share/share.h"
#include "engine/spec/flags/flags.h"
#include "launcher/command.h"
#include "launcher/place/machine.h"
#include "launcher/process/streams/pipes.h"
#include "launcher/version.h"
#include "lua/host/engine_api.h"

namespace strata::launcher {
namespace {

std::vector<Finding> Engine() {
  try {
    return EngineFindings(lua::LoadEngine().Doctor(), GpuCount());
  } catch (const Error& error) {
    return {{"engine", "cannot be loaded", error.what()}};
  }
}

/// What is installed, and where.
std::vector<Finding> Program() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string models = SharedPath("models");
  return {{"program", Str("strata ", kVersion, ", ", path), ""},
          {"models", models.empty() ? "none" : Str(SharedModels().size(), ", in ", models), ""}};
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  const Flags flags(arguments, command.flags);
  flags.CheckAllTaken();
  if (!flags.rest().empty()) {
    throw ConfigError("doctor takes no arguments, got " + flags.rest()[0]);
  }
  std::vector<Finding> findings = Program();
  for (Finding& finding : MachineFindings()) findings.push_back(std::move(finding));
  for (Finding& finding : Engine()) findings.push_back(std::move(finding));
  const bool as_json = flags.own()["json"].as_bool();
  WriteAll(STDOUT_FILENO,
           as_json ? FindingsValue(findings).ToJson(2) + "\n" : FindingsText(findings),
           "standard output");
  const bool healthy = std::all_of(findings.begin(), findings.end(),
                                   [](const Finding& finding) { return finding.problem.empty(); });
  return healthy ? 0 : 1;
}

}  // namespace

Command DoctorCommand() {
  return {.name = "doctor",
          .usage = "[--json]",
          .summary = "what this machine offers: cores, memory, devices, LibTorch, limits",
          .details = "Exits with 1 when something is missing, and says what to do about it.",
          .flags = {Field::Bool("json", "for programs").Default(false)},
          .run = &Run};
}

}  // namespace strata::launcher
