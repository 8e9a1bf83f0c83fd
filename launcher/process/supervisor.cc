// Supervise(): a single loop that receives reports of nodes and signals, and decides how a job
// ends. After the first failure the other ranks are told (Abort), and a grace period starts. When
// it is over, or at a second signal, all processes are killed. The outcome is computed last, from
// the ends of all ranks (verdict.h).
#include "launcher/process/supervisor.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/process/node.h"
#include "launcher/process/pipes.h"
#include "launcher/process/rank_process.h"
#include "launcher/process/signals.h"
#include "launcher/process/verdict.h"
#include "launcher/process/worker.h"

namespace strata::launcher {
namespace {

/// Seconds to wait, after SIGKILL, until the kernel has ended all processes.
constexpr double kKillSeconds = 0.5;
/// Seconds that ranks have to answer kNote.
constexpr double kNoteSeconds = 0.5;
/// Seconds to wait, after a signal, for the readers of our output.
constexpr double kHurrySeconds = 1;

class Supervisor : public NodeListener {
 public:
  Supervisor(JobListener& listener, const SupervisorOptions& options)
      : listener_(listener), options_(options) {
    if (options_.output != nullptr) options_.output->set_waits(false);
  }
  ~Supervisor() override {
    // A signal to all processes also ends the readers of our output; the outcome is still to be
    // written, so SIGPIPE stays ignored then.
    if (!was_signalled_) ::signal(SIGPIPE, old_sigpipe_);
    if (options_.output != nullptr && was_signalled_) options_.output->Hurry(kHurrySeconds);
  }

  /// Call before Run().
  void AddLocalNode(JobProgram& program) {
    nodes_.push_back(MakeLocalNode(program, *this, [this] { signals_.Restore(); }));
  }

  void AddRemoteNodes(std::vector<RemoteHost> hosts, int store_port) {
    for (RemoteHost& host : hosts) {
      const bool is_first = workers_.empty();
      auto on_store = [this, is_first](int port) {
        for (size_t i = 1; is_first && i < workers_.size(); ++i) workers_[i]->Begin(port);
      };
      auto worker = MakeRemoteNode(
          std::move(host), *this, [this] { signals_.Restore(); }, on_store);
      workers_.push_back(worker.get());
      nodes_.push_back(std::move(worker));
    }
    store_port_ = store_port;
  }

  Outcome Run();

  void OnRankStarted(int rank, int world_size, const std::string& role) override;
  void OnRankExited(int rank, int status) override;
  void OnMessage(int from, const Value& body) override;
  void OnOutput(int rank, bool is_error, std::string_view line) override {
    if (rank != JobListener::kStarter) CheckRank(rank);
    Tell(rank, [&] { listener_.OnOutput(rank, is_error, line); });
  }
  void OnFlight(const Value& ranks) override;
  void OnLost(int exit_code, const std::string& cause) override;

 private:
  /// Passes something to the listener. An exception of it ends the job, for a WorldError after the
  /// ranks have saved if they can.
  template <class Call>
  void Tell(int from, const Call& call) {
    try {
      call();
      has_told_ |= from != JobListener::kStarter;
    } catch (const WorldError& error) {
      if (!StopsWell(error.what())) throw;
    }
  }
  bool StopsWell(const std::string& why);
  bool OnOwnMessage(int from, const Value& body);
  /// Throws WorldError unless the rank belongs to the node that is being read.
  void CheckRank(int rank) const;
  std::vector<Source> Sources();
  void WaitForEvents();
  /// Ends the job if its output cannot be written, unless a signal ends it anyway.
  void CheckOutput();
  bool Finished() const;
  bool HasRanks(const Node& node) const;
  /// True if all machines have started their ranks.
  bool AllBegan() const;
  double Deadline() const;
  void OnDeadline();

  void ReadSignals();

  /// After the first failure: tells the ranks that still run, and starts their grace period.
  void BeginEnding(const std::string& why);
  void Abort(int rank);
  /// Asks all stoppable ranks to end early, or for a save (rank_process.h). False if there are
  /// none.
  bool AskStoppable(const char* what);
  void AskForSave();
  /// The steps of a requested flight record: ranks note where they are, machines send their
  /// records, and the result is kept.
  void AskForRecord();
  void GoOnWithRecord();
  std::string KeepRecord(const std::string& why, bool wanted);
  void Say(const std::string& line) { listener_.OnOutput(JobListener::kStarter, false, line); }
  void Fail(Outcome outcome);
  void KillAll();
  Outcome FinalOutcome() const;
  int world_size() const { return static_cast<int>(ends_.size()); }

  JobListener& listener_;
  SupervisorOptions options_;
  SignalQueue signals_;
  /// With SIGPIPE ignored, the end of a reader, or of a worker's command, makes a write fail
  /// instead of killing this process.
  const sighandler_t old_sigpipe_ = ::signal(SIGPIPE, SIG_IGN);
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<RemoteNode*> workers_;  // the remote ones among nodes_
  int store_port_ = 0;
  Node* reading_ = nullptr;     // the node being read; it may report only its own ranks
  bool was_signalled_ = false;  // by SIGINT, SIGTERM or SIGHUP
  std::map<int, Node*> ranks_;  // the ranks that we started, and their nodes
  std::vector<RankEnd> ends_;   // of all ranks; those started elsewhere stay empty
  int exits_ = 0;
  std::set<int> stoppable_;  // ranks that have called OnStop()
  bool has_told_ = false;    // the listener has received something from a rank
  bool asked_to_stop_ = false;
  bool stopped_ = false;          // a rank ended early as asked, perhaps by another launcher
  Outcome outcome_;               // a cause that is not a rank's failure
  std::string why_;               // the text that the ranks are told after a failure
  std::map<int, Value> flights_;  // by rank
  std::map<int, std::string> whereabouts_;  // the ranks' answers to kNote
  bool are_told_ = false;                   // machines have been asked for their flight records
  double record_deadline_ = kNever;
  double prepare_deadline_ = kNever;
  double grace_deadline_ = kNever;
  double kill_deadline_ = kNever;
};

Outcome Supervisor::Run() {
  RaiseDescriptorLimit();
  for (const auto& node : nodes_) node->Start();
  if (!workers_.empty()) workers_[0]->Begin(store_port_);
  if (options_.prepare_seconds > 0) {
    prepare_deadline_ = MonotonicSeconds() + options_.prepare_seconds;
  }
  while (!Finished()) WaitForEvents();
  Outcome outcome = FinalOutcome();
  if (outcome.exit_code != 0 && outcome.may_pass) {
    for (const auto& node : nodes_) node->TellFlight();
    const std::string line = KeepRecord(outcome.cause, /*wanted=*/false);
    if (!line.empty()) outcome.cause += Str("\n", line);
  }
  return outcome;
}

std::vector<Source> Supervisor::Sources() {
  std::vector<Source> sources = {{signals_.fd(), [this] { ReadSignals(); }}};
  OutputQueue* const output = options_.output;
  if (output != nullptr) output->AddTo(sources);
  const bool ends = was_signalled_ || grace_deadline_ != kNever;
  if (output != nullptr && output->is_full() && !ends) return sources;
  for (const auto& node : nodes_) {
    for (const Source& source : node->Sources()) {
      auto ready = [this, node = node.get(), ready = source.ready] {
        reading_ = node;
        ready();
      };
      sources.push_back({source.fd, std::move(ready), source.events});
    }
  }
  return sources;
}

void Supervisor::WaitForEvents() {
  // Reading a source may add ranks, but never removes what another source refers to.
  try {
    WaitFor(Sources(), std::min(Deadline(), record_deadline_));
    CheckOutput();
  } catch (const ConfigError& error) {
    Fail({2, error.what()});
  } catch (const Error& error) {
    Fail({1, error.what()});
  }
  if (MonotonicSeconds() >= record_deadline_) GoOnWithRecord();
  if (MonotonicSeconds() >= Deadline()) OnDeadline();
}

void Supervisor::CheckOutput() {
  if (options_.output == nullptr || options_.output->failure() == nullptr) return;
  ReadSignals();  // the signal that ended the reader may also have been sent to us
  if (was_signalled_ || outcome_.exit_code != 0) return;
  const OutputFailure& failure = *options_.output->failure();
  if (!failure.is_closed && StopsWell(failure.what)) return;
  Fail({failure.is_closed ? 128 + SIGPIPE : 1, failure.what});
}

/// Handles output that cannot be written while the ranks are healthy, such as a log on a full disk:
/// ranks that can save are asked to end. Returns false if the job must end immediately: no rank can
/// save, none has begun, or it happens a second time.
bool Supervisor::StopsWell(const std::string& why) {
  if (!has_told_ || outcome_.exit_code != 0) return false;
  if (!asked_to_stop_ && !AskStoppable(kStop)) return false;
  asked_to_stop_ = true;
  outcome_ = {1, why};
  listener_.StopFiles();
  return true;
}

bool Supervisor::Finished() const {
  if (MonotonicSeconds() >= kill_deadline_) return true;
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [](const auto& node) { return node->Finished(); });
}

bool Supervisor::HasRanks(const Node& node) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [&](const auto& rank) { return rank.second == &node; });
}

bool Supervisor::AllBegan() const {
  return std::ranges::all_of(nodes_, [this](const auto& node) { return HasRanks(*node); });
}

double Supervisor::Deadline() const {
  return std::min({prepare_deadline_, grace_deadline_, kill_deadline_});
}

void Supervisor::OnDeadline() {
  if (kill_deadline_ != kNever) return;
  if (grace_deadline_ == kNever) {
    Fail({1, Str("evaluating the script, planning and measuring took more than ",
                 FormatSeconds(options_.prepare_seconds),
                 "; nothing was started (--prepare_timeout=SECONDS gives more)")});
  }
  KillAll();
}

void Supervisor::ReadSignals() {
  while (int signal = signals_.Next()) {
    if (signal == SIGCHLD) {
      for (const auto& node : nodes_) {
        reading_ = node.get();
        node->Reap();
      }
      continue;
    }
    if (signal == SIGUSR1) {
      AskForSave();
      continue;
    }
    if (signal == SIGQUIT) {
      AskForRecord();
      continue;
    }
    was_signalled_ = true;
    if (signal == SIGTERM && !asked_to_stop_ && AskStoppable(kStop)) {
      asked_to_stop_ = true;
    } else if (grace_deadline_ != kNever) {
      KillAll();  // a second signal ends the grace period
    } else {
      Fail({128 + signal, signal == SIGINT ? "interrupted" : "ended by " + SignalName(signal)});
    }
  }
}

void Supervisor::OnMessage(int from, const Value& body) {
  bool own = false;
  try {
    own = OnOwnMessage(from, body);
  } catch (const Error& error) {
    const bool is_rank = from != JobListener::kStarter;
    throw WorldError(Str(is_rank ? Str("rank ", from) : std::string("the starter"),
                         " sent a message that makes no sense: ", error.what()));
  }
  if (!own) Tell(from, [&] { listener_.OnMessage(from, body); });
}

/// Handles the message types of rank_process.h. False for the program's own messages.
bool Supervisor::OnOwnMessage(int from, const Value& body) {
  const std::string& type = body["type"].as_string();
  const bool is_rank = from != JobListener::kStarter;
  if (is_rank) CheckRank(from);
  if (!is_rank) {
    if (type != kError) return false;
    Fail({body["kind"].as_string() == "config" ? 2 : 1, body["text"].as_string()});
  } else if (type == kError) {
    ends_[from].error = {body["kind"].as_string(), body["text"].as_string(),
                         body["time"].as_double(), body["repeats_news"] == Value(true)};
    if (body.Find("position")) ends_[from].position = body["position"].as_string();
    BeginEnding(Summary(ends_[from], from, world_size()));
  } else if (type == kStoppable) {
    stoppable_.insert(from);
  } else if (type == kStopped) {
    stopped_ = true;
  } else if (type == kDone) {
    ends_[from].done = true;
  } else if (type == kNoted) {
    // An answer that arrives later belongs to no record, because the rank has moved on.
    if (record_deadline_ != kNever) whereabouts_[from] = body["text"].as_string();
    const bool waits = record_deadline_ != kNever && !are_told_;
    if (waits && whereabouts_.size() == ranks_.size()) record_deadline_ = MonotonicSeconds();
  } else if (type == kPosition) {
    ends_[from].answered_abort = true;
    ends_[from].position = body["text"].as_string();
  } else {
    return false;
  }
  return true;
}

void Supervisor::CheckRank(int rank) const {
  const auto found = ranks_.find(rank);
  if (found != ranks_.end() && found->second == reading_) return;
  throw WorldError(Str("a message is about rank ", rank, ", which its sender does not run"));
}

void Supervisor::OnRankStarted(int rank, int world_size, const std::string& role) {
  const bool same_world = ends_.empty() || ends_.size() == static_cast<size_t>(world_size);
  const bool is_rank = rank >= 0 && rank < world_size && world_size <= kMostRanks;
  if (!is_rank || !same_world || ranks_.contains(rank)) {
    throw WorldError(Str("a message says that rank ", rank, " of ", world_size, " has started; ",
                         "expected a rank of this job that has not"));
  }
  ends_.resize(static_cast<size_t>(world_size));
  ends_[rank].role = role;
  ranks_[rank] = reading_;
  if (AllBegan()) prepare_deadline_ = kNever;
  if (grace_deadline_ != kNever) Abort(rank);  // something failed before this rank started
}

void Supervisor::OnRankExited(int rank, int status) {
  CheckRank(rank);
  RankEnd& end = ends_[rank];
  end.status = status;
  end.exit_order = exits_++;
  if (end.failed()) BeginEnding(Summary(end, rank, world_size()));
}

void Supervisor::OnLost(int exit_code, const std::string& cause) {
  // If a host is lost, other ranks lose their connections to its ranks. Their errors are only
  // consequences; the loss of the host is the cause.
  const int first = FirstCause(ends_);
  const bool follows = first >= 0 && ends_[first].error && ends_[first].error->kind == "peer";
  const Outcome lost = {exit_code, cause, /*may_pass=*/!ranks_.empty() && !was_signalled_};
  if (outcome_.exit_code == 0 && follows) outcome_ = lost;
  Fail(lost);
}

void Supervisor::BeginEnding(const std::string& why) {
  if (grace_deadline_ != kNever) return;
  grace_deadline_ = MonotonicSeconds() + options_.grace_seconds;
  why_ = why;
  for (const auto& [rank, node] : ranks_) Abort(rank);
  for (const auto& node : nodes_) {
    if (!HasRanks(*node)) node->KillAll();  // a starter cannot be told, so it is killed
  }
}

void Supervisor::Abort(int rank) {
  if (!ends_[rank].failed()) ranks_[rank]->Abort(rank, why_);
}

bool Supervisor::AskStoppable(const char* what) {
  if (grace_deadline_ != kNever) return false;
  bool asked = false;
  for (int rank : stoppable_) asked |= ranks_[rank]->Ask(rank, what);
  return asked;
}

void Supervisor::AskForSave() {
  if (!AskStoppable(kSave)) Say("SIGUSR1: nothing is saved: no rank trains with a save.dir now");
}

void Supervisor::AskForRecord() {
  if (!options_.keep_record) return Say("SIGQUIT: this command keeps no flight records");
  if (ranks_.empty()) return Say("SIGQUIT: no rank runs yet");
  if (record_deadline_ != kNever || grace_deadline_ != kNever) return;
  are_told_ = false;
  for (const auto& [rank, node] : ranks_) node->Ask(rank, kNote);
  record_deadline_ = MonotonicSeconds() + kNoteSeconds;
}

void Supervisor::GoOnWithRecord() {
  record_deadline_ = kNever;
  if (!are_told_) {
    are_told_ = true;
    for (const auto& node : nodes_) node->TellFlight();
    if (!workers_.empty()) record_deadline_ = MonotonicSeconds() + kTellSeconds;
  }
  if (record_deadline_ != kNever) return;
  Say(KeepRecord("asked for by SIGQUIT", /*wanted=*/true));
  whereabouts_.clear();  // the next record has its own positions
  flights_.clear();
}

void Supervisor::OnFlight(const Value& ranks) {
  for (const Value& rank : ranks.as_list())
    flights_[static_cast<int>(rank["rank"].as_int())] = rank;
}

std::string Supervisor::KeepRecord(const std::string& why, bool wanted) {
  if (!options_.keep_record) return "";
  Value::List ranks;
  for (auto& [number, flight] : flights_) {
    wanted |= flight.Has("hung");
    const auto n = static_cast<size_t>(number);
    // Roles and positions are known only if each rank is a process.
    if (n < ends_.size() && (ends_.size() > 1 || flights_.size() == 1)) {
      const RankEnd& end = ends_[n];
      flight.Set("role", end.role);
      const std::string& now = whereabouts_[number];
      if (const std::string& at = now.empty() ? end.position : now; !at.empty()) {
        flight.Set("position", at);
      }
    }
    ranks.push_back(flight);
  }
  return options_.keep_record(FlightRecord(why, MonotonicSeconds(), ranks), wanted);
}

void Supervisor::Fail(Outcome outcome) {
  if (grace_deadline_ == kNever && outcome_.exit_code == 0) outcome_ = std::move(outcome);
  BeginEnding(outcome_.cause);
}

void Supervisor::KillAll() {
  if (kill_deadline_ != kNever) return;
  kill_deadline_ = MonotonicSeconds() + kKillSeconds + (workers_.empty() ? 0 : kTellSeconds);
  for (const auto& [rank, node] : ranks_) {
    RankEnd& end = ends_[rank];
    end.killed_by_us = !end.status && !end.error;
  }
  for (const auto& node : nodes_) node->KillAll();
}

Outcome Supervisor::FinalOutcome() const {
  if (outcome_.exit_code != 0) {
    Outcome outcome = outcome_;
    const bool is_written = options_.output == nullptr || options_.output->failure() == nullptr;
    outcome.is_early = !AllBegan() && !was_signalled_ && is_written;
    return outcome;
  }
  const int cause = FirstCause(ends_);
  if (cause >= 0) {
    const bool may_pass = MayPass(ends_[cause]) && !was_signalled_;
    return {ExitCode(ends_[cause]), Explain(ends_, cause), may_pass};
  }
  if (!stopped_) return {};  // without a stopped rank the job ran to its end, even if asked to stop
  return {128 + SIGTERM, "ended by " + SignalName(SIGTERM)};
}

/// Runs the job. Then restores the signals, and waits for the readers of the output.
Outcome RunToTheEnd(std::unique_ptr<Supervisor> supervisor, OutputQueue* output) {
  Outcome outcome = supervisor->Run();
  supervisor.reset();
  if (output != nullptr) output->set_waits(true);
  return outcome;
}

}  // namespace

Outcome Supervise(JobProgram& program, JobListener& listener, const SupervisorOptions& options) {
  auto supervisor = std::make_unique<Supervisor>(listener, options);
  supervisor->AddLocalNode(program);
  return RunToTheEnd(std::move(supervisor), options.output);
}

Outcome Supervise(std::vector<RemoteHost> hosts, int store_port, JobListener& listener,
                  const SupervisorOptions& options) {
  auto supervisor = std::make_unique<Supervisor>(listener, options);
  supervisor->AddRemoteNodes(std::move(hosts), store_port);
  return RunToTheEnd(std::move(supervisor), options.output);
}

}  // namespace strata::launcher
