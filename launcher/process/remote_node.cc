// The remote Node (node.h, worker.h): the processes of another machine, behind a `strata worker`
// that this process starts by ssh.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/process/channel.h"
#include "launcher/process/rank_process.h"
#include "launcher/process/signals.h"
#include "launcher/process/verdict.h"
#include "launcher/process/worker.h"

namespace strata::launcher {
namespace {

constexpr int kCannotExec = 127;
/// The most reads of what a command left behind. The limit ensures an end even if another process
/// keeps writing.
constexpr int kLastReads = 1000;

class WorkerNode : public RemoteNode {
 public:
  WorkerNode(RemoteHost host, NodeListener& listener, std::function<void()> in_child,
             std::function<void(int)> on_store)
      : host_(std::move(host)),
        listener_(listener),
        in_child_(std::move(in_child)),
        on_store_(std::move(on_store)) {}
  ~WorkerNode() override {
    if (has_child_) ::killpg(pid_, SIGKILL);
  }

  void Start() override {
    Pipe in = MakePipe(), out = MakePipe(), err = MakePipe();
    const pid_t launcher = ::getpid();
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) ThrowErrno("cannot start a process");
    if (pid_ == 0) Exec(launcher, in.read.get(), out.write.get(), err.write.get());
    has_child_ = true;
    ::setpgid(pid_, pid_);  // the child does this too; the first of the two calls takes effect
    channel_ = Channel(std::move(out.read), std::move(in.write));
    channel_.StopWaiting();
    errors_ = std::make_unique<OutputStream>(std::move(err.read), [this](std::string_view line) {
      last_error_ = line;
      listener_.OnOutput(JobListener::kStarter, true, Str("[", host_.name, "] ", line));
    });
  }

  void Begin(int store_port) override {
    Value job = host_.job;
    channel_.Send(job.Set("type", "job").Set("store_port", store_port));
  }

  std::vector<Source> Sources() override {
    std::vector<Source> sources;
    if (errors_->is_open()) sources.push_back({errors_->fd(), [this] { errors_->Read(); }});
    channel_.AddTo(sources, [this] { ReadMessages(); });
    return sources;
  }

  void Reap() override {
    if (!has_child_ || ::waitpid(pid_, &status_, WNOHANG) != pid_) return;
    has_child_ = false;
    // Reads everything that the command wrote. The streams may never reach their end, because other
    // processes may hold the descriptors (as ssh does with ControlPersist).
    for (int i = 0; i < kLastReads && errors_->is_open() && errors_->Read(); ++i) continue;
    for (int i = 0; i < kLastReads && channel_.is_open(); ++i) ReadMessages();
    channel_.Close();
    TellIfLost();
  }

  void Abort(int rank, const std::string& why) override {
    channel_.Send(TypedMessage(kAbort).Set("rank", rank).Set("why", why));
  }

  bool Ask(int rank, const char* what) override {
    return running_.contains(rank) && channel_.Send(TypedMessage(what).Set("rank", rank));
  }

  void TellFlight() override { channel_.Send(TypedMessage(kFlight)); }

  /// Closes the worker's input; the worker then ends all its processes. If the command has not
  /// reached its worker yet, it is killed here. (The destructor kills a command that does not end.)
  void KillAll() override {
    killed_ = true;
    channel_.CloseOutput();
    if (has_child_ && !is_greeted_) ::killpg(pid_, SIGKILL);
  }

  bool Finished() const override { return !has_child_ && !channel_.is_open(); }

 private:
  [[noreturn]] void Exec(pid_t launcher, int in, int out, int err) {
    LeaveSignalsToLauncher();
    in_child_();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(kCannotExec);
    ::setpgid(0, 0);  // so that the terminal's Ctrl-C reaches only the launcher
    ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::signal(SIGPIPE, SIG_DFL);
    std::vector<char*> words;
    for (std::string& word : host_.command) words.push_back(word.data());
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    std::fprintf(stderr, "cannot start %s: %s\n", words[0], std::strerror(errno));
    std::fflush(stderr);
    ::_exit(kCannotExec);
  }

  void ReadMessages() {
    std::vector<Message> messages;
    bool open = true;
    try {
      open = channel_.Receive(messages);
    } catch (const WorldError& error) {
      channel_.CloseInput();
      throw WorldError(Str("the worker on ", host_.name, ": ", error.what()));
    }
    if (!open) {
      channel_.CloseInput();
      TellIfLost();
    }
    for (const Message& message : messages) OnMessage(message.body);
  }

  void OnMessage(const Value& message) {
    const std::string& type = message["type"].as_string();
    const auto number = [&](const char* name) { return static_cast<int>(message[name].as_int()); };
    if (type == "hello") {
      is_greeted_ = true;
      clock_offset_ = MonotonicSeconds() - message["time"].as_double();
      if (number("store_port") > 0) on_store_(number("store_port"));
    } else if (type == "started") {
      has_started_ = true;
      running_.insert(number("rank"));
      listener_.OnRankStarted(number("rank"), number("ranks"), message["role"].as_string());
    } else if (type == "exited") {
      running_.erase(number("rank"));
      listener_.OnRankExited(number("rank"), number("status"));
    } else if (type == "output") {
      listener_.OnOutput(number("rank"), message["is_error"].as_bool(),
                         message["text"].as_string());
    } else if (type == kFlight) {
      listener_.OnFlight(Shifted(message["ranks"].as_list(), clock_offset_));
    } else if (type == "said") {
      OnSaid(number("from"), message["body"]);
    } else if (type == "lost") {
      told_ = true;
      listener_.OnLost(number("code"), Str(host_.name, ": ", message["cause"].as_string()));
    } else {
      throw WorldError(
          Str("the worker on ", host_.name, " sent a message of the unknown type \"", type, "\""));
    }
  }

  /// The flight records with times converted to this machine's clock.
  static Value Shifted(Value::List ranks, double offset) {
    for (Value& rank : ranks) {
      Value::List events = rank["events"].as_list();
      for (Value& event : events) {
        for (const char* time : {"start", "end"}) {
          if (event.Has(time)) event.Set(time, event[time].as_double() + offset);
        }
      }
      rank.Set("events", std::move(events));
    }
    return ranks;
  }

  /// Passes on a message. The time of an error is converted to this machine's clock.
  void OnSaid(int from, Value body) {
    if (from == JobListener::kStarter && body["type"] == Value(kError)) told_ = true;
    if (body["type"] == Value(kError)) {
      body.Set("time", body["time"].as_double() + clock_offset_);
    }
    listener_.OnMessage(from, body);
  }

  /// Reports a lost connection if the command ended with an error, or before the ranks were done.
  void TellIfLost() {
    if (channel_.is_open() || has_child_ || killed_ || told_) return;
    told_ = true;
    const bool failed = !WIFEXITED(status_) || WEXITSTATUS(status_) != 0;
    if (has_started_ && running_.empty() && !failed) return;
    const std::string how = WIFEXITED(status_) ? Str("ended with code ", WEXITSTATUS(status_))
                                               : "was ended by " + SignalName(WTERMSIG(status_));
    listener_.OnLost(1, Str("the connection to ", host_.name, " is lost: ", host_.command[0], " ",
                            how, last_error_.empty() ? "" : ": " + last_error_));
  }

  RemoteHost host_;
  NodeListener& listener_;
  std::function<void()> in_child_;
  std::function<void(int)> on_store_;
  pid_t pid_ = 0;
  bool has_child_ = false;  // from Start() until its end is known
  bool killed_ = false;
  bool told_ = false;  // the reason for the node's end has been reported
  int status_ = 0;
  bool is_greeted_ = false;  // the worker has said "hello"
  double clock_offset_ = 0;
  Channel channel_;
  std::unique_ptr<OutputStream> errors_;
  std::string last_error_;
  bool has_started_ = false;  // a rank has started
  std::set<int> running_;
};

}  // namespace

std::unique_ptr<RemoteNode> MakeRemoteNode(RemoteHost host, NodeListener& listener,
                                           std::function<void()> in_child,
                                           std::function<void(int port)> on_store) {
  return std::make_unique<WorkerNode>(std::move(host), listener, std::move(in_child),
                                      std::move(on_store));
}

}  // namespace strata::launcher
