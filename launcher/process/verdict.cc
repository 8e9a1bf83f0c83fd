// Finds the rank that is the cause, and the text that the user is told about it.
#include "launcher/process/verdict.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/base/text.h"

namespace strata::launcher {
namespace {

bool EndedWell(const RankEnd& rank) {
  return rank.done && WIFEXITED(*rank.status) && WEXITSTATUS(*rank.status) == 0;
}

/// The order of FirstCause(): a smaller value is nearer to the cause.
enum class Nearness { kVanished, kOwnError, kOwnErrorAfterNews, kLostPeer, kNoCause };

Nearness NearnessOf(const RankEnd& rank) {
  if (!rank.failed() || rank.killed_by_us) return Nearness::kNoCause;
  if (!rank.error) return rank.answered_abort ? Nearness::kNoCause : Nearness::kVanished;
  if (rank.error->repeats_news) return Nearness::kNoCause;
  if (rank.error->kind != "peer") {
    return rank.answered_abort ? Nearness::kOwnErrorAfterNews : Nearness::kOwnError;
  }
  return rank.answered_abort ? Nearness::kNoCause : Nearness::kLostPeer;
}

bool Earlier(const RankEnd& a, const RankEnd& b) {
  const Nearness nearness = NearnessOf(a);
  if (nearness != NearnessOf(b)) return nearness < NearnessOf(b);
  if (nearness == Nearness::kVanished) return a.exit_order < b.exit_order;
  return a.error->time < b.error->time;
}

std::string HowItVanished(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* const maybe =
        signal == SIGKILL  ? "; if nobody killed it, the machine ran out of memory"
        : signal == SIGBUS ? "; a file that it had mapped became shorter, or a disk failed"
                           : "";
    return Str("was ended by ", SignalName(signal), maybe);
  }
  const int code = WEXITSTATUS(status);
  if (code == 0) return "ended before its work was done";
  return Str("exited with code ", code, " without saying why");
}

/// "rank 1 (stage 1)".
std::string NameOf(const RankEnd& rank, int index) {
  return Str("rank ", index, rank.role.empty() ? "" : Str(" (", rank.role, ")"));
}

/// "rank 1: TEXT", or the text itself if it begins with its rank.
std::string WithRank(int index, const std::string& text) {
  const std::string name = Str("rank ", index);
  return text.rfind(name + " ", 0) == 0 ? text : Str(name, ": ", text);
}

/// True for an error that all ranks found together.
bool IsOfAll(const RankError& error) {
  return error.kind == kTrainingError || error.kind == kCorruptionError;
}

/// The line about a rank that is not the cause; "" if there is nothing to say.
std::string Whereabouts(const RankEnd& rank, int index) {
  const bool lost_peer = rank.error && rank.error->kind == "peer" && !rank.position.empty();
  if (rank.error && !rank.error->repeats_news && !lost_peer) {
    return WithRank(index, Split(rank.error->text, '\n')[0]);
  }
  if (rank.answered_abort || lost_peer) return rank.position;
  return rank.killed_by_us ? NameOf(rank, index) + ": no answer; it is stopped or stuck" : "";
}

}  // namespace

bool RankEnd::failed() const { return error || (status && !EndedWell(*this)); }

int FirstCause(const std::vector<RankEnd>& ranks) {
  int first = -1;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    if (NearnessOf(ranks[i]) == Nearness::kNoCause) continue;
    if (first < 0 || Earlier(ranks[i], ranks[first])) first = i;
  }
  return first;
}

int ExitCode(const RankEnd& rank) {
  if (rank.status && !rank.killed_by_us) {
    if (WIFSIGNALED(*rank.status)) return 128 + WTERMSIG(*rank.status);
    if (WEXITSTATUS(*rank.status) != 0) return WEXITSTATUS(*rank.status);
  }
  if (!rank.failed()) return 0;
  if (rank.error && rank.error->kind == kCorruptionError) return kCorrupted;
  return rank.error && rank.error->kind == "config" ? 2 : 1;
}

bool MayPass(const RankEnd& rank) {
  return !rank.error || (rank.error->kind != "config" && !IsOfAll(*rank.error));
}

std::string Summary(const RankEnd& rank, int index, int world_size) {
  if (!rank.error) return Str(NameOf(rank, index), " ", HowItVanished(*rank.status));
  const bool is_its_own = world_size > 1 && !IsOfAll(*rank.error);
  return is_its_own ? WithRank(index, rank.error->text) : rank.error->text;
}

std::string Explain(const std::vector<RankEnd>& ranks, int cause) {
  const int world_size = static_cast<int>(ranks.size());
  std::string others;
  for (int i = 0; i < world_size; ++i) {
    // All ranks may have reported one and the same error.
    const bool same =
        ranks[i].error && ranks[cause].error && ranks[i].error->text == ranks[cause].error->text;
    const std::string whereabouts = i == cause || same ? "" : Whereabouts(ranks[i], i);
    if (!whereabouts.empty()) others += Str("\n  ", whereabouts);
  }
  const std::string summary = Summary(ranks[cause], cause, world_size);
  return others.empty() ? summary : Str(summary, "\nwhere the others were:", others);
}

std::string SignalName(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? Str("signal ", signal, " (SIG", name, ")") : Str("signal ", signal);
}

}  // namespace strata::launcher
