// An engine that runs all ranks of a plan as threads of this process. The rank threads (Crew) wait
// for commands. A call of the engine posts one command to all ranks, waits until all have carried
// it out, and returns rank 0's result. The first exception of any rank aborts the transports of
// all, so that no rank waits forever, and is rethrown to the caller; afterwards the engine can only
// be closed.
#include <ATen/Context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/comm/transports/thread_transport.h"
#include "engine/layers/random/random.h"
#include "engine/runtime/given_batches.h"
#include "engine/runtime/make_engine.h"
#include "engine/runtime/rank_engine.h"
#include "engine/runtime/watch/stack.h"

namespace strata {
namespace {

/// The time that a hanging rank gets to return once the watchdog has reported it.
constexpr auto kGrace = std::chrono::seconds(2);

/// The rank threads and the command that they carry out. Shared by the caller and every thread, so
/// that a thread that is left behind still finds its data when it wakes up.
class Crew : public std::enable_shared_from_this<Crew> {
 public:
  using Command = std::function<void(RankEngine&)>;

  Crew(const Job& job, const Plan& plan, EngineScript& script, std::span<FlightRing> flight)
      : job_(job), plan_(plan), script_(script) {
    auto transports =
        MakeThreadTransports(plan.topology.world_size(), LinksOf(plan), GroupsOf(plan));
    for (auto& transport : transports) {
      const int rank = transport->rank();
      ranks_.push_back(std::make_unique<Rank>());
      ranks_.back()->transport = std::move(transport);
      ranks_.back()->progress = std::make_shared<Progress>(
          rank, FaultOf(rank), flight.empty() ? nullptr : &flight[static_cast<size_t>(rank)]);
    }
  }

  std::vector<WatchedRank> Watched() const {
    std::vector<WatchedRank> watched;
    for (const auto& rank : ranks_) {
      watched.push_back({rank->progress, rank->transport});
    }
    return watched;
  }

  /// Starts the threads, which make their engines, and waits for them.
  void Start() {
    working_ = static_cast<int>(ranks_.size());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank]->working = true;
      ranks_[rank]->thread = std::thread([crew = shared_from_this(), rank] {
        crew->Serve(*crew->ranks_[rank], static_cast<int>(rank));
      });
    }
    AwaitAll();
  }

  /// Runs `command` on every rank and returns when all are done. If one failed, throws the first
  /// exception; later calls throw as well.
  void RunOnAll(Command command) {
    {
      const std::lock_guard lock(mutex_);
      if (cause_) throw WorldError("the engine failed before; it can only be closed");
      STRATA_CHECK(!closing_) << "the engine is closed";
      command_ = std::move(command);
      ++number_;
      working_ = static_cast<int>(ranks_.size());
      for (auto& rank : ranks_) rank->working = true;
    }
    changed_.notify_all();
    AwaitAll();
  }

  bool has_failed() {
    const std::lock_guard lock(mutex_);
    return cause_ != nullptr;
  }

  void OnHang(const std::string& report) {
    {
      const std::lock_guard lock(mutex_);
      hung_ = true;
      if (!cause_) cause_ = std::make_exception_ptr(WorldError(report));
    }
    changed_.notify_all();
  }

  void Abort(const std::string& why) {
    for (auto& rank : ranks_) rank->transport->Abort(why);
  }

  Requests& requests() { return *requests_; }

  void NoteStacks() const {
    for (const auto& rank : ranks_) NoteStack(*rank->progress);
  }

  std::string Position() const {
    std::vector<std::string> positions;
    for (const auto& rank : ranks_) positions.push_back(rank->progress->Position());
    return Join(positions, "; ");
  }

  /// Ends the threads. A thread that is still working has been given up and is detached.
  void Close() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    for (auto& rank : ranks_) {
      if (!rank->thread.joinable()) continue;
      if (Works(*rank)) {
        rank->thread.detach();
      } else {
        rank->thread.join();
      }
    }
  }

 private:
  struct Rank {
    std::shared_ptr<Transport> transport;
    std::shared_ptr<Progress> progress;
    std::unique_ptr<RankEngine> engine;
    std::thread thread;
    bool working = false;
  };

  bool Works(const Rank& rank) {
    const std::lock_guard lock(mutex_);
    return rank.working;
  }

  /// The main function of a rank thread: makes the engine, then carries out commands until Close().
  void Serve(Rank& rank, int number) {
    std::optional<MutedProgress> muted;  // rank 0 speaks for all
    if (number != 0) muted.emplace();
    Do(rank, number, [&] {
      const int ranks = static_cast<int>(ranks_.size());
      rank.engine = std::make_unique<RankEngine>(job_, plan_, script_,
                                                 RankServices{.transport = rank.transport,
                                                              .progress = rank.progress,
                                                              .requests = requests_,
                                                              .local_rank = number,
                                                              .local_ranks = ranks,
                                                              .programs = programs_,
                                                              .watchdog = nullptr});
    });
    for (uint64_t done = 0; const auto command = NextCommand(done);) {
      ++done;
      Do(rank, number, [&] { (*command)(*rank.engine); });
    }
    rank.engine = nullptr;
  }

  std::optional<Command> NextCommand(uint64_t done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closing_ || number_ > done; });
    if (closing_) return std::nullopt;
    return command_;
  }

  /// Runs `work`. On failure keeps the first exception of all ranks and aborts the transports.
  template <class Work>
  void Do(Rank& rank, int number, const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      Fail(Str("rank ", number, " failed: ", error.what()));
    } catch (...) {
      Fail(Str("rank ", number, " failed"));
    }
    const std::lock_guard lock(mutex_);
    rank.working = false;
    if (--working_ == 0) changed_.notify_all();
  }

  /// Called in a catch block. `why`: the text for the other ranks.
  void Fail(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (!cause_) cause_ = std::current_exception();
    }
    Abort(why);
  }

  void AwaitAll() {
    std::unique_lock lock(mutex_);
    const auto all_done = [this] { return working_ == 0; };
    changed_.wait(lock, [&] { return all_done() || hung_; });
    if (!all_done()) changed_.wait_for(lock, kGrace, all_done);
    if (cause_) std::rethrow_exception(cause_);
  }

  const Job job_;
  const Plan plan_;
  EngineScript& script_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  const std::shared_ptr<Requests> requests_ = std::make_shared<Requests>();
  const std::shared_ptr<ProvedPrograms> programs_ = std::make_shared<ProvedPrograms>();

  std::mutex mutex_;
  std::condition_variable changed_;
  Command command_;
  uint64_t number_ = 0;  // of the command
  int working_ = 0;      // ranks that have not finished it yet
  bool hung_ = false;
  bool closing_ = false;
  std::exception_ptr cause_;
};

/// Calls a method on every rank's engine and returns rank 0's result.
template <class Method, class... Arguments>
auto OnAll(Crew& crew, Method method, Arguments... arguments) {
  using Result = std::decay_t<std::invoke_result_t<Method, RankEngine&, Arguments...>>;
  const auto result = std::make_shared<std::optional<Result>>();
  crew.RunOnAll([=](RankEngine& engine) {
    Result mine = std::invoke(method, engine, arguments...);
    if (engine.rank() == 0) result->emplace(std::move(mine));
  });
  return std::move(**result);
}

/// Forwards every call to all ranks and returns rank 0's result.
class ThreadsEngine : public Engine {
 public:
  ThreadsEngine(const Job& job, const Plan& plan, EngineScript& script,
                std::span<FlightRing> flight)
      : given_(job, plan, script), crew_(std::make_shared<Crew>(job, plan, script, flight)) {
    const RandomScope registers_its_kernels_before_threads_run(0);
    watchdog_ = std::make_unique<Watchdog>(
        crew_->Watched(), job.hang_timeout,
        [crew = crew_.get()](const std::string& report) { crew->OnHang(report); });
    try {
      crew_->Start();
      steps_per_epoch_ = OnAll(*crew_, &RankEngine::steps_per_epoch);
      start_ = OnAll(*crew_, &RankEngine::start);
    } catch (...) {
      Close();
      throw;
    }
  }
  ~ThreadsEngine() override { Close(); }

  StepResult TrainStep(MicroBatches* batch) override {
    if (batch) given_.CheckAll(*batch);
    return OnAll(*crew_, &RankEngine::TrainStep, batch);
  }
  EvalResult EvalBatch(MicroBatches& batch, Outputs* outputs) override {
    given_.CheckAll(batch);
    if (outputs) outputs->list.resize(batch.list.size());  // before the threads write to it
    return OnAll(*crew_, &RankEngine::EvalBatch, std::ref(batch), outputs);
  }
  EvalResult EvaluateTestData() override { return OnAll(*crew_, &RankEngine::EvaluateTestData); }
  void PredictBatch(MicroBatches& batch, Outputs& outputs) override {
    given_.CheckInputs(batch);
    outputs.list.resize(batch.list.size());  // before the threads write to it
    crew_->RunOnAll([&](RankEngine& engine) { engine.PredictBatch(batch, outputs); });
  }
  std::optional<Predicted> PredictTestData(int64_t part) override {
    return OnAll(*crew_, &RankEngine::PredictTestData, part);
  }
  TextReport BeginTexts(const TextRequest& request) override {
    return OnAll(*crew_, &RankEngine::BeginTexts, std::cref(request));
  }
  std::vector<NewToken> NextTokens() override { return OnAll(*crew_, &RankEngine::NextTokens); }
  int64_t steps_per_epoch() const override { return steps_per_epoch_; }
  const StartReport& start() const override { return start_; }
  SaveReport Save() override { return OnAll(*crew_, &RankEngine::Save); }
  SaveReport FinishSave() override { return OnAll(*crew_, &RankEngine::FinishSave); }
  std::optional<SaveReport> WaitForSave() override {
    if (crew_->has_failed()) return std::nullopt;
    return OnAll(*crew_, &RankEngine::WaitForSave);
  }
  SaveReport SaveBest() override { return OnAll(*crew_, &RankEngine::SaveBest); }
  RecutReport Recut(const std::vector<int>& cuts) override {
    return OnAll(*crew_, &RankEngine::Recut, std::cref(cuts));
  }
  void RequestStop() override { crew_->requests().stop = true; }
  void RequestSave() override { crew_->requests().save = true; }
  void set_record_gradients(bool record) override {
    crew_->RunOnAll([record](RankEngine& engine) { engine.set_record_gradients(record); });
  }
  std::vector<TensorDigest> Parameters() override { return OnAll(*crew_, &RankEngine::Parameters); }
  void ReadTensor(const std::string& path, Kind kind, Outputs& outputs) override {
    crew_->RunOnAll([&](RankEngine& engine) { engine.ReadTensor(path, kind, outputs); });
  }
  void Abort(const std::string& why) override { crew_->Abort(why); }
  std::string Position() const override { return crew_->Position(); }
  void NoteStacks() override { crew_->NoteStacks(); }
  std::string CommReport() override { return OnAll(*crew_, &RankEngine::CommReport); }
  schedule::Trace TakeTrace() override { return OnAll(*crew_, &RankEngine::TakeTrace); }
  void Close() override {
    watchdog_ = nullptr;
    crew_->Close();
  }

 private:
  GivenBatches given_;
  std::shared_ptr<Crew> crew_;
  std::unique_ptr<Watchdog> watchdog_;
  int64_t steps_per_epoch_ = 0;
  StartReport start_;
};

}  // namespace

std::unique_ptr<Engine> MakeThreadsEngine(const Job& job, const Plan& plan, EngineScript& script,
                                          std::span<FlightRing> flight) {
  // FlashAttention is allowed only if no other rank runs in this process (cuda_attention.cc). With
  // job.transport = "threads" it is off even for one rank, so that `strata verify` can compare one
  // rank with several.
  const bool is_alone = plan.topology.world_size() == 1 && job.transport != "threads";
  if (plan.device == "cuda") at::globalContext().setSDPUseFlash(is_alone);
  return std::make_unique<ThreadsEngine>(job, plan, script, flight);
}

}  // namespace strata
