// Reads what /proc, resource limits and folders say about this machine.
#include "launcher/place/machine.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/cache.h"
#include "engine/base/error.h"
#include "engine/base/machine/cores.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/machine/identity.h"
#include "engine/base/machine/memory.h"
#include "engine/base/share.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

constexpr rlim_t kEnoughFiles = 1024;
constexpr int64_t kLittleMemory = int64_t{2} << 30;
constexpr double kLittleSharedMemory = 64 << 20;

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Finding System() {
  return {"system",
          Str(ReadLine("/proc/sys/kernel/ostype"), " ", ReadLine("/proc/sys/kernel/osrelease")),
          ""};
}

Finding Cores() {
  const std::string model = ProcessorName();
  return {"cores", Str(MachineCores(), model.empty() ? "" : ", " + model), ""};
}

Finding Memory() {
  const MachineMemory memory = ReadMachineMemory();
  const auto text_of = [](int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); };
  std::string text = Str(text_of(memory.total), ", ", text_of(memory.available), " of it free");
  if (memory.limit != MachineMemory::kNoLimit) {
    text += Str("; the container's limit is ", text_of(memory.limit));
  }
  const bool little = memory.available < kLittleMemory;
  return {"memory", text,
          little ? "less than 2 GiB are free: LibTorch alone takes 0.4 GB a rank" : ""};
}

Finding SharedMemory() {
  struct statvfs stats;
  if (::statvfs("/dev/shm", &stats) != 0) {
    return {"/dev/shm", "not there", "there is no /dev/shm: NCCL needs it between local GPUs"};
  }
  const double size = static_cast<double>(stats.f_blocks) * static_cast<double>(stats.f_frsize);
  const bool little = size <= kLittleSharedMemory;
  return {"/dev/shm", FormatBytes(size),
          little ? "/dev/shm is small: NCCL needs more between local GPUs (docker: --shm-size=1g)"
                 : ""};
}

std::string LimitText(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : FormatCount(static_cast<int64_t>(limit));
}

Finding OpenFiles() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const bool few = limit.rlim_max < kEnoughFiles;  // jobs raise the soft limit themselves
  return {
      "open files", Str(LimitText(limit.rlim_max), " (ulimit -Hn)"),
      few ? "few open files are allowed: let the limit be raised (ulimit -Hn 4096, as root)" : ""};
}

Finding Processes() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NPROC, &limit);
  return {"processes", Str(LimitText(limit.rlim_cur), " (ulimit -u)"), ""};
}

Finding Gpus() {
  const int gpus = GpuCount();
  const std::string driver = ReadLine("/proc/driver/nvidia/version");
  return {"GPUs", gpus == 0 ? "none, the device is cpu" : Str(gpus, "; ", driver), ""};
}

std::string FolderProblem(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(folder, error)) {  // a packaged program does not need the folder
    return SharedPath("data").empty() ? Str(folder, " does not exist: run tools/setup") : "";
  }
  if (::access(folder.c_str(), W_OK) != 0) return Str(folder, " cannot be written to");
  return "";
}

Finding Cache() {
  try {
    const std::string folder = CacheFolder();
    return {"cache", folder, FolderProblem(folder)};
  } catch (const Error& error) {
    return {"cache", "unknown", error.what()};
  }
}

std::string TextOf(const Value& value) {
  return value.is_string() ? value.as_string() : value.is_null() ? "?" : value.ToLua();
}

/// The finding about CUDA and NCCL, which are in the engine's second library. If there is no GPU,
/// it is no problem that this library is missing.
Finding Cuda(const Value& engine, int gpus) {
  if (engine["cuda"] == Value(true)) {
    std::vector<std::string> devices;
    for (const Value& device : engine["devices"].as_list()) devices.push_back(TextOf(device));
    return {"CUDA, NCCL", Join(devices, ", "), ""};
  }
  if (gpus == 0) return {"CUDA, NCCL", "not needed without a GPU", ""};
  const Value& trouble = engine["cuda_trouble"];
  return {"CUDA, NCCL", "do not start",
          trouble.is_null() ? "there are GPUs, but CUDA does not start: see the driver"
                            : "CUDA does not start: " + TextOf(trouble)};
}

}  // namespace

std::vector<Finding> MachineFindings() {
  return {System(), Cores(), Memory(), SharedMemory(), OpenFiles(), Processes(), Gpus(), Cache()};
}

std::vector<Finding> EngineFindings(const Value& engine, int gpus) {
  std::vector<Finding> findings = {
      {"LibTorch", TextOf(engine["libtorch"]), ""},
      {"CPU library",
       Str(TextOf(engine["blas"]), ", ", TextOf(engine["cpu_capability"]),
           engine["mkldnn"] == Value(true) ? ", oneDNN" : ""),
       ""},
      {"waiting threads", TextOf(engine["waiting"]), ""},
      {"Gloo", "built in: the transport between CPU processes", ""},
      Cuda(engine, gpus)};
  const Value& trouble = engine["kernels_trouble"];
  if (!trouble.is_null()) findings.push_back({"kernels", "do not start", TextOf(trouble)});
  if (!engine["kernels"].is_null()) findings.push_back({"kernels", TextOf(engine["kernels"]), ""});
  return findings;
}

std::string FindingsText(const std::vector<Finding>& findings) {
  size_t widest = 0;
  for (const Finding& finding : findings) widest = std::max(widest, finding.name.size());
  std::string text, problems;
  for (const Finding& finding : findings) {
    const std::string padding(widest - finding.name.size() + 2, ' ');
    text += Str(finding.name, padding, finding.text, "\n");
    if (!finding.problem.empty()) problems += Str("- ", finding.problem, "\n");
  }
  return text + (problems.empty() ? "\nNothing is missing.\n" : "\nTo be mended:\n" + problems);
}

Value FindingsValue(const std::vector<Finding>& findings) {
  Value::List list;
  for (const Finding& finding : findings) {
    list.push_back(Value::MakeMap(
        {{"name", finding.name}, {"text", finding.text}, {"problem", finding.problem}}));
  }
  return list;
}

}  // namespace strata::launcher
