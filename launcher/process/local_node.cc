// The local Node (node.h): the starter and the ranks of this machine, which are children of this
// process.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/process/channel.h"
#include "launcher/process/node.h"
#include "launcher/process/rank_process.h"
#include "launcher/process/signals.h"
#include "launcher/process/verdict.h"

namespace strata::launcher {
namespace {

struct Rank {
  Channel channel;
  FlightMemory flight;
  std::unique_ptr<OutputStream> out;
  std::unique_ptr<OutputStream> err;

  bool is_closed() const { return !channel.is_open() && !out->is_open() && !err->is_open(); }
};

class LocalNode : public Node {
 public:
  LocalNode(JobProgram& program, NodeListener& listener, std::function<void()> in_child)
      : program_(program), listener_(listener), in_child_(std::move(in_child)) {}

  void Start() override {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    SocketPair channel = MakeSocketPair();
    const pid_t launcher = ::getpid();
    std::fflush(nullptr);
    starter_ = ::fork();
    if (starter_ < 0) ThrowErrno("cannot start a process");
    if (starter_ == 0) {
      LeaveSignalsToLauncher();
      in_child_();
      channel.parent.Close();
      RunStarter(program_, std::move(channel.child), launcher);
    }
    // The child does this too; the first of the two calls takes effect.
    ::setpgid(starter_, starter_);
    starter_channel_ = Channel(std::move(channel.parent));
    starter_channel_.StopWaiting();
  }

  std::vector<Source> Sources() override {
    std::vector<Source> sources;
    auto add_channel = [&](Channel& channel, int from) {
      channel.AddTo(sources, [this, &channel, from] { ReadMessages(channel, from); });
    };
    auto add_stream = [&](OutputStream& stream) {
      if (stream.is_open()) sources.push_back({stream.fd(), [&stream] { stream.Read(); }});
    };
    for (auto& [number, rank] : ranks_) {
      add_stream(*rank.out);
      add_stream(*rank.err);
      add_channel(rank.channel, number);
    }
    add_channel(starter_channel_, JobListener::kStarter);
    return sources;
  }

  /// Reaps the starter and, if it ends before them, the ranks: they are one process group.
  void Reap() override {
    int status;
    pid_t pid;
    while ((pid = ::waitpid(-starter_, &status, WNOHANG)) > 0) {
      if (pid != starter_) continue;
      has_starter_ = false;
      status_ = status;
      TellIfLost();
    }
    has_children_ = pid == 0;
  }

  void Abort(int rank, const std::string& why) override {
    const auto found = ranks_.find(rank);
    if (found == ranks_.end() || !found->second.channel.is_open()) return;
    found->second.channel.Send(TypedMessage(kAbort).Set("why", why));
  }

  bool Ask(int rank, const char* what) override {
    const auto found = ranks_.find(rank);
    if (found == ranks_.end() || !found->second.channel.is_open()) return false;
    return found->second.channel.Send(TypedMessage(what));
  }

  void TellFlight() override {
    Value::List flights;
    for (const auto& [number, rank] : ranks_) {
      const std::span<FlightRing> rings = rank.flight.rings();
      for (size_t i = 0; i < rings.size(); ++i) {
        flights.push_back(FlightOf(rings[i], number + static_cast<int>(i)));
      }
    }
    listener_.OnFlight(flights);
  }

  /// Kills the process group. After the group's last process has ended, its number may be reused by
  /// another group, so nothing is killed then.
  void KillAll() override {
    killed_ = true;
    if (has_children_) ::killpg(starter_, SIGKILL);
  }

  bool Finished() const override {
    return !has_children_ && !starter_channel_.is_open() &&
           std::all_of(ranks_.begin(), ranks_.end(),
                       [](const auto& entry) { return entry.second.is_closed(); });
  }

 private:
  void ReadMessages(Channel& channel, int from) {
    std::vector<Message> messages;
    if (!channel.Receive(messages)) {
      channel.Close();
      return TellIfLost();
    }
    for (Message& message : messages) {
      const bool own = from == JobListener::kStarter && OnStarterMessage(message);
      if (!own) listener_.OnMessage(from, message.body);
    }
  }

  /// Handles the starter's messages about ranks. False for all other messages.
  bool OnStarterMessage(Message& message) {
    const Value& body = message.body;
    try {
      const std::string& type = body["type"].as_string();
      if (type == kError) said_why_ = true;
      if (type == kRankExited) {
        listener_.OnRankExited(static_cast<int>(body["rank"].as_int()),
                               static_cast<int>(body["status"].as_int()));
      } else if (type == kRankStarted) {
        AddRank(message);
      } else {
        return false;
      }
      return true;
    } catch (const Error& error) {
      throw WorldError(Str("the starter sent a message that makes no sense: ", error.what()));
    }
  }

  /// Reports that the starter ended without a message. If it was ended by a signal, this is
  /// reported at once. If it exited, its messages are read first, since one may be its error.
  void TellIfLost() {
    if (has_starter_ || killed_ || said_why_) return;
    const std::string what = ranks_.empty() ? "the process that evaluated the script"
                                            : "the process that started the ranks";
    if (WIFSIGNALED(status_)) {
      said_why_ = true;
      const int signal = WTERMSIG(status_);
      return listener_.OnLost(128 + signal, Str(what, " was ended by ", SignalName(signal)));
    }
    const int code = WEXITSTATUS(status_);
    if (starter_channel_.is_open() || (code == 0 && !ranks_.empty())) return;
    said_why_ = true;
    listener_.OnLost(std::max(code, 1), Str(what, " exited with code ", code));
  }

  void AddRank(Message& message) {
    if (message.fds.size() != 4) {
      throw WorldError(
          Str("the starter announced a rank with ", message.fds.size(), " channels, expected 4"));
    }
    const int rank = static_cast<int>(message.body["rank"].as_int());
    auto sink = [this, rank](bool is_error) {
      return [this, rank, is_error](std::string_view line) {
        listener_.OnOutput(rank, is_error, line);
      };
    };
    Rank& added = ranks_[rank];
    added.channel = Channel(std::move(message.fds[0]));
    added.channel.StopWaiting();
    added.flight = FlightMemory::Map(message.fds[3]);
    added.out = std::make_unique<OutputStream>(std::move(message.fds[1]), sink(false));
    added.err = std::make_unique<OutputStream>(std::move(message.fds[2]), sink(true));
    listener_.OnRankStarted(rank, static_cast<int>(message.body["ranks"].as_int()),
                            message.body["role"].as_string());
  }

  JobProgram& program_;
  NodeListener& listener_;
  std::function<void()> in_child_;
  pid_t starter_ = 0;
  bool has_starter_ = true;
  bool has_children_ = true;  // the starter, or ranks that it left behind
  bool killed_ = false;
  bool said_why_ = false;  // the reason for the starter's end has been reported
  int status_ = 0;         // the starter's waitpid() status
  Channel starter_channel_;
  std::map<int, Rank> ranks_;
};

}  // namespace

std::unique_ptr<Node> MakeLocalNode(JobProgram& program, NodeListener& listener,
                                    std::function<void()> in_child) {
  return std::make_unique<LocalNode>(program, listener, std::move(in_child));
}

}  // namespace strata::launcher
