// Runs the starter and each rank, from fork() to _exit().
#include "launcher/process/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/peer_error.h"
#include "engine/runtime/training_error.h"
#include "launcher/process/verdict.h"

namespace strata::launcher {
namespace {

constexpr int kLostLauncher = 1;
/// How long a rank without an `abort` may take to report its own error when another rank has
/// failed.
constexpr std::chrono::milliseconds kLastWord(300);

/// Runs `work`. An exception is sent as a message by `send`; its exit code is returned.
template <class Work, class SendMessage>
int Guarded(Work work, SendMessage send) {
  try {
    work();
    return 0;
  } catch (const ConfigError& error) {
    send(ErrorMessage("config", error.what()));
    return 2;
  } catch (const PeerError& error) {
    send(ErrorMessage("peer", error.what()));
  } catch (const CorruptionError& error) {
    send(ErrorMessage(kCorruptionError, error.what()));
    return kCorrupted;
  } catch (const TrainingError& error) {
    send(ErrorMessage(kTrainingError, error.what()));
  } catch (const Error& error) {
    send(ErrorMessage("world", error.what()));
  } catch (const std::exception& error) {
    send(ErrorMessage("internal", Str("a bug in Strata: ", error.what())));
  }
  return 1;
}

/// Makes the kernel kill this process when its parent dies.
void DieWith(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kLostLauncher);
}

void SetProcessName(const std::string& name) { ::prctl(PR_SET_NAME, name.c_str()); }

/// Ends this process without destructors, since those of LibTorch take 200 ms.
[[noreturn]] void Exit(int code) {
  std::fflush(nullptr);
  ::_exit(code);
}

class StarterReporter : public Reporter {
 public:
  explicit StarterReporter(Channel& channel) : channel_(channel) {}
  void Send(const Value& message) override { channel_.Send(message); }

 private:
  Channel& channel_;
};

/// The rank's end of its channel. A thread listens on it: for the launcher's message that another
/// rank has failed, for its request to stop, and for the end of the launcher itself.
class RankLink : public RankReporter {
 public:
  RankLink(int rank, Fd socket, std::span<FlightRing> flight)
      : rank_(rank), channel_(std::move(socket)), flight_(flight) {
    std::thread([this] { Listen(); }).detach();
  }

  void Send(const Value& message) override { channel_.Send(message); }

  void OnAbort(std::function<void(const std::string&)> abort,
               std::function<std::string()> position) override {
    std::lock_guard lock(mutex_);
    abort_ = std::move(abort);
    position_ = std::move(position);
    changed_.notify_all();
  }

  void OnStop(std::function<void()> stop, std::function<void()> save) override {
    std::lock_guard lock(mutex_);
    stop_ = std::move(stop);
    save_ = std::move(save);
    if (stop_) channel_.Send(TypedMessage(kStoppable));
  }

  void OnNote(std::function<void()> note) override {
    std::lock_guard lock(mutex_);
    note_ = std::move(note);
  }

  std::span<FlightRing> flight() const override { return flight_; }

  void Stopped() override { channel_.Send(TypedMessage(kStopped)); }

  /// Sends the rank's last message. Failures of other ranks are ignored from now on.
  void Finish(Value message) {
    std::lock_guard lock(mutex_);
    finished_ = true;
    const Value* text = message.Find("text");
    const bool repeats =
        text && !told_.empty() && text->as_string().find(told_) != std::string::npos;
    if (repeats) message.Set("repeats_news", true);
    if (position_) message.Set("position", position_());
    channel_.Send(message);
    changed_.notify_all();
  }

 private:
  void Listen() {
    std::vector<Message> messages;
    while (channel_.Receive(messages)) {
      for (const Message& message : messages) {
        Hear(message.body);
      }
      messages.clear();
    }
    ::_exit(kLostLauncher);
  }

  void Hear(const Value& body) {
    const std::string& type = body["type"].as_string();
    if (type == kAbort) return Answer(body["why"].as_string());
    std::lock_guard lock(mutex_);
    if (type == kStop && stop_) stop_();
    if (type == kSave && save_) save_();
    if (type == kNote) {
      if (note_) note_();
      channel_.Send(TypedMessage(kNoted).Set("text", Position()));
    }
  }

  std::string Position() const {
    return position_ ? position_() : Str("rank ", rank_, ": starting");
  }

  void Answer(const std::string& why) {
    std::unique_lock lock(mutex_);
    if (finished_) return;
    Value answer = TypedMessage(kPosition);
    channel_.Send(answer.Set("text", Position()));
    told_ = why;
    // A rank without `abort` cannot be woken. It gets time to report its own error, which may be
    // the cause of the other rank's failure.
    changed_.wait_for(lock, kLastWord, [this] { return finished_ || abort_; });
    if (finished_) return;
    if (!abort_) ::_exit(1);
    abort_(why);
    abort_ = nullptr;
  }

  int rank_;
  Channel channel_;
  const std::span<FlightRing> flight_;
  std::mutex mutex_;
  std::condition_variable changed_;  // notified when abort_ or finished_ changes
  std::function<void(const std::string&)> abort_;
  std::function<std::string()> position_;
  std::function<void()> stop_, save_, note_;
  std::string told_;  // the failure of another rank, as the launcher reported it; "" = none
  bool finished_ = false;
};

/// Both ends of a rank's channel, standard output and standard error: the launcher's and the
/// rank's.
struct RankEnds {
  SocketPair channel = MakeSocketPair();
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  FlightMemory flight;
};

[[noreturn]] void RunRank(JobProgram& program, int rank, RankEnds ends, pid_t starter) {
  DieWith(starter);
  SetProcessName(Str("strata rank ", rank));
  ::dup2(ends.out.write.get(), STDOUT_FILENO);
  ::dup2(ends.err.write.get(), STDERR_FILENO);
  // Output is buffered by lines, so that it is shown at once and not lost if the rank is killed.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  // Never deleted, because its thread uses it.
  auto* link = new RankLink(rank, std::move(ends.channel.child), ends.flight.rings());
  const int code =
      Guarded([&] { program.Run(rank, *link); }, [&](const Value& error) { link->Finish(error); });
  std::fflush(nullptr);
  if (code == 0) link->Finish(TypedMessage(kDone));
  Exit(code);
}

/// Sends the launcher's ends of a rank to the launcher, and closes them here, so that the rank's
/// channel closes when the launcher ends.
void HandToLauncher(Channel& launcher, int rank, const RankRange& range, RankEnds& ends) {
  const size_t index = static_cast<size_t>(rank - range.first);
  const std::string role = index < range.roles.size() ? range.roles[index] : "";
  Value message = TypedMessage(kRankStarted);
  message.Set("rank", rank).Set("ranks", range.world_size).Set("role", role);
  const std::array<int, 4> fds = {ends.channel.parent.get(), ends.out.read.get(),
                                  ends.err.read.get(), ends.flight.fd().get()};
  launcher.Send(message, fds);
  ends.channel.parent.Close();
  ends.out.read.Close();
  ends.err.read.Close();
}

/// Forks the ranks. Returns their pids in the order of ranks.
std::vector<pid_t> ForkRanks(JobProgram& program, const RankRange& range, Channel& launcher) {
  const pid_t starter = ::getpid();
  std::vector<pid_t> pids;
  for (int rank = range.first; rank < range.first + range.count; ++rank) {
    RankEnds ends;
    ends.flight = FlightMemory::Make(range.threads);
    HandToLauncher(launcher, rank, range, ends);
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) ThrowErrno(Str("cannot start rank ", rank));
    if (pid == 0) {
      launcher.Close();
      RunRank(program, rank, std::move(ends), starter);
    }
    pids.push_back(pid);
  }
  program.OnForked();
  return pids;
}

void ReportEnds(const std::vector<pid_t>& pids, int first_rank, Channel& launcher) {
  for (size_t ended = 0; ended < pids.size();) {
    int status;
    const pid_t pid = ::waitpid(-1, &status, 0);
    for (size_t i = 0; i < pids.size(); ++i) {
      if (pids[i] != pid) continue;
      Value message = TypedMessage(kRankExited);
      launcher.Send(message.Set("rank", first_rank + static_cast<int>(i)).Set("status", status));
      ++ended;
    }
  }
}

void ReadNothing() {
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
}

}  // namespace

Value ErrorMessage(const char* kind, const std::string& text) {
  Value message = TypedMessage(kError);
  message.Set("kind", kind).Set("text", text).Set("time", MonotonicSeconds());
  return message;
}

void RunStarter(JobProgram& program, Fd socket, pid_t launcher) {
  DieWith(launcher);
  ::setpgid(0, 0);
  SetProcessName("strata starter");
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);  // with `stty tostop`, output of a background group would stop it
  ::signal(SIGXFSZ, SIG_IGN);  // at the limit of a file's size write() fails instead
  ReadNothing();
  Channel channel(std::move(socket));
  RankRange range;
  std::vector<pid_t> pids;
  const int code = Guarded(
      [&] {
        StarterReporter reporter(channel);
        range = program.Prepare(reporter);
        pids = ForkRanks(program, range, channel);
      },
      [&](const Value& error) { channel.Send(error); });
  if (code == 0) ReportEnds(pids, range.first, channel);
  Exit(code);
}

}  // namespace strata::launcher
