// Each phase of a save (writing a part, committing) is the work of a thread, which returns a JSON
// text. Poll() asks, with one all-reduce, whether any rank's thread is still working; when all are
// done, it gathers the texts and starts the next phase or reports the end. Only rank 0 commits; the
// threads of other ranks have nothing to do in that phase.
#include "engine/runtime/saves/saver.h"

#include <ATen/ops/empty_like.h>

#include <filesystem>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/checkpoint/save_part.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

/// The time between two polls in Finish().
constexpr std::chrono::milliseconds kPatience(50);

std::string ErrorIn(const Value& result) {
  return result.Has("error") ? result["error"].as_string() : "";
}

Value Failure(const std::string& text) { return Value::MakeMap({{"error", text}}); }

}  // namespace

Saver::Saver(const SaveSpec& spec, bool goes_on, Transport& transport, Progress& progress)
    : transport_(transport), progress_(progress) {
  if (transport_.rank() != 0) return;
  const std::vector<std::string> saves = ListSaves(spec.dir);
  if (!saves.empty() && !goes_on) {
    throw ConfigError(Str("there are saves in ", spec.dir, " already, the last of step ",
                          *StepOfSave(saves.back()), "; go on from them with --resume, or save to ",
                          "another folder: --save.dir"));
  }
  folder_.emplace(spec.dir, spec.keep);
}

Saver::~Saver() {
  cancelled_ = true;
  if (work_.valid()) work_.wait();
  if (phase_ == Phase::kWriting) Discard();
}

template <class Work>
void Saver::Launch(Work work) {
  work_ = std::async(std::launch::async, [work = std::move(work)]() -> std::string {
    try {
      return work().ToJson();
    } catch (const std::exception& error) {
      return Failure(error.what()).ToJson();
    }
  });
}

void Saver::Start(const TrainingState& training, const std::vector<StateTensor>& owned,
                  bool copies) {
  STRATA_CHECK(!pending());
  start_ = Clock::now();
  training_ = training;
  step_ = training.step;
  phase_ = Phase::kWriting;
  copies_ = copies;
  temporary_.clear();
  Value begun = Value::MakeMap();
  try {
    if (folder_) begun.Set("folder", folder_->Begin(step_));
  } catch (const Error& error) {
    begun = Failure(error.what());
  }
  begun = Value::FromJson(transport_.Broadcast(begun.ToJson(), 0));
  if (begun.Has("error")) return Launch([begun] { return begun; });
  temporary_ = begun["folder"].as_string();
  written_ = owned;
  for (StateTensor& tensor : written_) {
    if (!copies && tensor.memory.is_cpu()) continue;
    tensor.memory = at::empty_like(tensor.memory, tensor.memory.options().device(at::kCPU))
                        .copy_(tensor.memory);
  }
  Launch([this] {
    std::vector<OwnedSlice> slices;
    for (const StateTensor& tensor : written_) {
      slices.push_back(
          {tensor.name, tensor.kind, tensor.spec, tensor.slice, tensor.memory.const_data_ptr()});
    }
    const SavePart part = WritePart(temporary_, transport_.rank(), slices, cancelled_);
    return Value::MakeMap({{"part", part.ToJson()}});
  });
}

bool Saver::IsBusy() {
  const bool busy = work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  return transport_.AllReduceSum({busy ? 1.0 : 0.0})[0] > 0;
}

std::optional<SaveReport> Saver::Poll() {
  STRATA_CHECK(pending());
  if (IsBusy()) return std::nullopt;
  return phase_ == Phase::kWriting ? AfterWriting() : AfterCommitting();
}

SaveReport Saver::Finish() {
  ProgressLine line("writing the save", 0);
  for (;;) {
    line.Advance();
    work_.wait_for(kPatience);
    progress_.WaitForAll();
    if (std::optional<SaveReport> report = Poll()) return *std::move(report);
    progress_.Complete();  // a slow disk is no hang: the ranks still communicate
  }
}

std::optional<SaveReport> Saver::AfterWriting() {
  std::vector<std::string> parts = transport_.Gather(work_.get());
  written_.clear();
  if (copies_) ReleaseFreeMemory();  // memory of the copies, which no step uses
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const Value result = Value::FromJson(parts[rank]);
    const std::string error = ErrorIn(result);
    if (!error.empty()) {
      Discard();
      phase_ = Phase::kIdle;
      return ReportOf(Str("rank ", rank, ": ", error));
    }
    parts[rank] = result["part"].as_string();
  }
  phase_ = Phase::kCommitting;
  if (folder_) {
    Commit(parts);
  } else {
    Launch([] { return Value::MakeMap(); });
  }
  return std::nullopt;
}

void Saver::Commit(const std::vector<std::string>& parts) {
  Launch([this, parts] {
    try {
      Manifest manifest;
      manifest.training = training_;
      for (const std::string& part : parts) AddPart(manifest, SavePart::FromJson(part));
      int64_t bytes = 0;
      for (const SavedFile& file : manifest.files) bytes += file.bytes;
      const std::string path = folder_->Commit(temporary_, std::move(manifest));
      return Value::MakeMap({{"path", path}, {"bytes", bytes}});
    } catch (const std::exception&) {
      Discard();
      throw;
    }
  });
}

SaveReport Saver::AfterCommitting() {
  const Value own = Value::FromJson(work_.get());
  const Value result = Value::FromJson(transport_.Broadcast(own.ToJson(), 0));
  phase_ = Phase::kIdle;
  SaveReport report = ReportOf(ErrorIn(result));
  if (!report.error.empty()) return report;
  report.path = result["path"].as_string();
  report.bytes = result["bytes"].as_int();
  return report;
}

void Saver::Discard() const {
  if (folder_ && !temporary_.empty()) folder_->Discard(temporary_);
}

SaveReport Saver::ReportOf(const std::string& error) {
  SaveReport report;
  report.step = step_;
  report.error = error;
  report.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  return report;
}

}  // namespace strata
