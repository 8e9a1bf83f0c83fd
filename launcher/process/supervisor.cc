#include "launcher/process/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/process/channel.h"
#include "launcher/process/lines.h"
#include "launcher/process/rank_process.h"
#include "launcher/process/verdict.h"

namespace strata::launcher {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// After SIGKILL: how long to wait for the kernel to end everything.
constexpr double kKillSeconds = 0.5;

/// Signals come through a descriptor while this lives; the children's mask is the old one.
class SignalQueue {
 public:
  SignalQueue() {
    ::signal(SIGCHLD, SIG_DFL);  // a parent that ignores it would take the exit codes from us
    sigset_t set;
    sigemptyset(&set);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      if (!IsIgnored(signal)) sigaddset(&set, signal);
    }
    ::sigprocmask(SIG_BLOCK, &set, &old_);
    fd_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_.is_open()) ThrowErrno("cannot make a signalfd");
  }
  ~SignalQueue() { Restore(); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// As by nohup, or by a shell for what runs in the background. It stays so.
  static bool IsIgnored(int signal) {
    struct sigaction action;
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }
  void Restore() { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
  int fd() const { return fd_.get(); }
  /// The next signal, or 0.
  int Next() {
    signalfd_siginfo info;
    return ::read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                  : 0;
  }

 private:
  sigset_t old_;
  Fd fd_;
};

/// A rank's standard output or standard error.
struct OutputStream {
  OutputStream(Fd fd, LineSplitter::Sink sink) : fd(std::move(fd)), lines(std::move(sink)) {}

  void Read() {
    std::array<char, 1 << 16> buffer;
    const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) return;
    if (count > 0) return lines.Add({buffer.data(), static_cast<size_t>(count)});
    lines.Finish();
    fd.Close();
  }

  Fd fd;
  LineSplitter lines;
};

struct Rank {
  Channel channel;
  std::unique_ptr<OutputStream> out;
  std::unique_ptr<OutputStream> err;
};

class Supervisor {
 public:
  Supervisor(JobProgram& program, JobListener& listener, const SupervisorOptions& options)
      : program_(program), listener_(listener), options_(options) {}

  Outcome Run();

 private:
  /// A descriptor to wait for, and what to do when it has something.
  struct Source {
    int fd;
    std::function<void()> read;
  };

  void ForkStarter();
  std::vector<Source> Sources();
  void WaitForEvents();
  bool Finished() const;
  double Deadline() const;
  void OnDeadline();

  void ReadSignals();
  void Reap();
  void ReadMessages(Channel& channel, int from);
  void OnMessage(int from, Message message);
  bool OnOwnMessage(int from, Message& message);
  void AddRank(Message message);
  void OnRankExited(int rank, int status);
  void OnStarterEnded(int status);

  /// Something failed: tells all who still run, and gives them the grace.
  void BeginEnding(const std::string& why);
  void Abort(size_t rank);
  void Fail(Outcome outcome);
  void KillAll();
  Outcome FinalOutcome() const;
  bool AllDone() const;
  std::string StarterName() const;

  JobProgram& program_;
  JobListener& listener_;
  SupervisorOptions options_;
  SignalQueue signals_;
  pid_t starter_ = 0;
  int starter_status_ = 0;
  Channel starter_channel_;
  bool has_children_ = true;
  std::vector<Rank> ranks_;
  std::vector<RankEnd> ends_;
  int exits_ = 0;
  size_t world_size_ = 0;
  Outcome outcome_;  // a cause that is no rank's failure
  std::string why_;  // once something has failed: what the ranks are told
  double prepare_deadline_ = kNever;
  double grace_deadline_ = kNever;
  double kill_deadline_ = kNever;
};

Outcome Supervisor::Run() {
  ForkStarter();
  prepare_deadline_ = MonotonicSeconds() + options_.prepare_seconds;
  while (!Finished()) WaitForEvents();
  return FinalOutcome();
}

void Supervisor::ForkStarter() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  SocketPair channel = MakeSocketPair();
  const pid_t launcher = ::getpid();
  std::fflush(nullptr);
  starter_ = ::fork();
  if (starter_ < 0) ThrowErrno("cannot start a process");
  if (starter_ == 0) {
    signals_.Restore();
    channel.parent.Close();
    RunStarter(program_, std::move(channel.child), launcher);
  }
  ::setpgid(starter_, starter_);  // here too: whoever comes first
  starter_channel_ = Channel(std::move(channel.parent));
}

std::vector<Supervisor::Source> Supervisor::Sources() {
  std::vector<Source> sources = {{signals_.fd(), [this] { ReadSignals(); }}};
  auto add_channel = [&](Channel& channel, int from) {
    if (!channel.is_open()) return;
    sources.push_back({channel.fd(), [this, &channel, from] { ReadMessages(channel, from); }});
  };
  auto add_stream = [&](OutputStream& stream) {
    if (stream.fd.is_open()) sources.push_back({stream.fd.get(), [&stream] { stream.Read(); }});
  };
  for (int i = 0; i < static_cast<int>(ranks_.size()); ++i) {
    add_stream(*ranks_[i].out);
    add_stream(*ranks_[i].err);
    add_channel(ranks_[i].channel, i);
  }
  add_channel(starter_channel_, JobListener::kStarter);
  return sources;
}

void Supervisor::WaitForEvents() {
  // The sources point into ranks_, which grows only through the starter's channel: the last one.
  const std::vector<Source> sources = Sources();
  std::vector<pollfd> polled;
  for (const Source& source : sources) polled.push_back({source.fd, POLLIN, 0});
  const double left = Deadline() - MonotonicSeconds();
  const int timeout = left == kNever ? -1 : static_cast<int>(std::ceil(std::max(0., left) * 1000));
  if (::poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) ThrowErrno("poll");
  try {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (polled[i].revents != 0) sources[i].read();
    }
  } catch (const ConfigError& error) {
    Fail({2, error.what()});
  } catch (const Error& error) {
    Fail({1, error.what()});
  }
  if (MonotonicSeconds() >= Deadline()) OnDeadline();
}

bool Supervisor::Finished() const {
  if (MonotonicSeconds() >= kill_deadline_) return true;
  auto closed = [](const Rank& rank) {
    return !rank.channel.is_open() && !rank.out->fd.is_open() && !rank.err->fd.is_open();
  };
  return !has_children_ && !starter_channel_.is_open() &&
         std::all_of(ranks_.begin(), ranks_.end(), closed);
}

double Supervisor::Deadline() const {
  return std::min({prepare_deadline_, grace_deadline_, kill_deadline_});
}

void Supervisor::OnDeadline() {
  if (kill_deadline_ != kNever) return;
  if (grace_deadline_ == kNever) {
    Fail({1, Str("the script did not finish within ", FormatSeconds(options_.prepare_seconds),
                 "; nothing was started")});
  }
  KillAll();
}

void Supervisor::ReadSignals() {
  while (int signal = signals_.Next()) {
    if (signal == SIGCHLD) {
      Reap();
    } else if (grace_deadline_ != kNever) {
      KillAll();  // asked twice: no more patience
    } else {
      Fail({128 + signal, signal == SIGINT ? "interrupted" : "ended by " + SignalName(signal)});
    }
  }
}

void Supervisor::Reap() {
  int status;
  pid_t pid;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid == starter_) OnStarterEnded(status);
  }
  has_children_ = pid == 0;
}

void Supervisor::ReadMessages(Channel& channel, int from) {
  std::vector<Message> messages;
  if (!channel.Receive(messages)) return channel.Close();
  for (Message& message : messages) OnMessage(from, std::move(message));
}

void Supervisor::OnMessage(int from, Message message) {
  bool own = false;
  try {
    own = OnOwnMessage(from, message);
  } catch (const Error& error) {
    const bool is_rank = from != JobListener::kStarter;
    throw WorldError(Str(is_rank ? Str("rank ", from) : std::string("the starter"),
                         " sent a message that makes no sense: ", error.what()));
  }
  if (!own) listener_.OnMessage(from, message.body);
}

/// False when the message is for the listener.
bool Supervisor::OnOwnMessage(int from, Message& message) {
  const Value& body = message.body;
  const std::string& type = body["type"].as_string();
  const bool is_rank = from != JobListener::kStarter;
  if (type == kRankStarted && !is_rank) {
    AddRank(std::move(message));
  } else if (type == kRankExited && !is_rank) {
    OnRankExited(static_cast<int>(body["rank"].as_int()),
                 static_cast<int>(body["status"].as_int()));
  } else if (type == kError && !is_rank) {
    Fail({body["kind"].as_string() == "config" ? 2 : 1, body["text"].as_string()});
  } else if (type == kError) {
    ends_[from].error = {body["kind"].as_string(), body["text"].as_string(),
                         body["time"].as_double(), body["echo"] == Value(true)};
    BeginEnding(Summary(ends_[from], from, static_cast<int>(world_size_)));
  } else if (type == kDone) {
    ends_[from].done = true;
  } else if (type == kPosition) {
    ends_[from].answered_abort = true;
    ends_[from].position = body["text"].as_string();
  } else {
    return false;
  }
  return true;
}

void Supervisor::AddRank(Message message) {
  const int rank = static_cast<int>(message.body["rank"].as_int());
  world_size_ = static_cast<size_t>(message.body["ranks"].as_int());
  prepare_deadline_ = kNever;
  auto sink = [this, rank](bool is_error) {
    return
        [this, rank, is_error](std::string_view line) { listener_.OnOutput(rank, is_error, line); };
  };
  ends_.emplace_back();
  ranks_.push_back({Channel(std::move(message.fds[0])),
                    std::make_unique<OutputStream>(std::move(message.fds[1]), sink(false)),
                    std::make_unique<OutputStream>(std::move(message.fds[2]), sink(true))});
  if (grace_deadline_ != kNever) Abort(ends_.size() - 1);  // the failure was faster
}

void Supervisor::OnRankExited(int rank, int status) {
  RankEnd& end = ends_[rank];
  end.status = status;
  end.exit_order = exits_++;
  if (end.failed()) BeginEnding(Summary(end, rank, static_cast<int>(world_size_)));
}

void Supervisor::OnStarterEnded(int status) {
  starter_status_ = status;
  if (WIFEXITED(status) || kill_deadline_ != kNever) return;  // its word may come, or we did it
  Fail(
      {128 + WTERMSIG(status), Str(StarterName(), " was ended by ", SignalName(WTERMSIG(status)))});
}

std::string Supervisor::StarterName() const {
  return ranks_.empty() ? "the process that evaluated the script"
                        : "the process that started the ranks";
}

void Supervisor::BeginEnding(const std::string& why) {
  if (grace_deadline_ != kNever) return;
  grace_deadline_ = MonotonicSeconds() + options_.grace_seconds;
  why_ = why;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) Abort(rank);
  if (ranks_.empty()) KillAll();  // the starter does not listen
}

void Supervisor::Abort(size_t rank) {
  if (ends_[rank].failed() || !ranks_[rank].channel.is_open()) return;
  ranks_[rank].channel.Send(Value::MakeMap({{"type", Value(kAbort)}, {"why", Value(why_)}}));
}

void Supervisor::Fail(Outcome outcome) {
  if (grace_deadline_ == kNever) outcome_ = std::move(outcome);
  BeginEnding(outcome_.cause);
}

void Supervisor::KillAll() {
  if (kill_deadline_ != kNever) return;
  kill_deadline_ = MonotonicSeconds() + kKillSeconds;
  for (RankEnd& end : ends_) end.killed_by_us = !end.status && !end.error;
  if (has_children_) ::killpg(starter_, SIGKILL);
}

Outcome Supervisor::FinalOutcome() const {
  if (outcome_.exit_code != 0) return outcome_;
  const int cause = FirstCause(ends_);
  if (cause >= 0) return {ExitCode(ends_[cause]), Explain(ends_, cause)};
  if (AllDone()) return {};
  const int code = WEXITSTATUS(starter_status_);
  return {std::max(code, 1), Str(StarterName(), " exited with code ", code, " without saying why")};
}

bool Supervisor::AllDone() const {
  return !ends_.empty() && ends_.size() == world_size_ &&
         std::all_of(ends_.begin(), ends_.end(), [](const RankEnd& end) { return end.done; });
}

}  // namespace

Outcome Supervise(JobProgram& program, JobListener& listener, const SupervisorOptions& options) {
  return Supervisor(program, listener, options).Run();
}

}  // namespace strata::launcher
