#include "engine/schedule/trace.h"

#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata::schedule {
namespace {

const char* CategoryOf(Kind kind) {
  if (kind == Kind::kForward || kind == Kind::kRecompute) return "forward";
  if (GivesInputGrad(kind) || GivesWeightGrad(kind)) return "backward";
  if (kind == Kind::kOverlap) return "overlap";
  return IsCommunication(kind) ? "communication" : "step";
}

/// The time in microseconds, with three decimals.
std::string Micro(double seconds) { return Printf("%.3f", seconds * 1e6); }

class ChromeWriter {
 public:
  explicit ChromeWriter(const Trace& trace) : trace_(trace) {}

  std::string Write() {
    text_ = "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" + Notes().ToJson() +
            ",\n\"traceEvents\":[\n";
    for (const RankTrace& rank : trace_.ranks) Add(rank);
    if (!is_first_) text_ += "\n";
    return text_ + "]}\n";
  }

 private:
  Value Notes() const {
    Value errors;
    for (const RankTrace& rank : trace_.ranks) errors.Append(rank.clock_error);
    constexpr int kVersion = 1;
    return Value::MakeMap({{"strata_trace", kVersion},
                           {"job", trace_.name},
                           {"first_step", trace_.first_step()},
                           {"last_step", trace_.last_step()},
                           {"clock_error_seconds", errors}});
  }

  void Add(const RankTrace& rank) {
    Event(Str(R"("ph":"M","pid":)", rank.rank, R"(,"tid":0,"name":"process_name","args":{"name":)",
              R"("rank )", rank.rank, "\"}"));
    for (size_t begin = 0; begin < rank.actions.size();) {
      size_t end = begin;
      while (end < rank.actions.size() && rank.actions[end].step == rank.actions[begin].step) ++end;
      AddStep(rank, begin, end);
      begin = end;
    }
  }

  /// Adds the slice of the step before those of its actions, since viewers draw slices that lie
  /// within another one below it.
  void AddStep(const RankTrace& rank, size_t begin, size_t end) {
    const TracedAction& first = rank.actions[begin];
    Slice(rank.rank, Str("step ", first.step), "step", first.start, rank.actions[end - 1].end, "");
    for (size_t i = begin; i < end; ++i) AddAction(rank.rank, rank.actions[i]);
  }

  void AddAction(int rank, const TracedAction& traced) {
    const double begins = traced.start + traced.waited;
    const std::string name = ToText(traced.action);
    if (traced.waited > 0) Slice(rank, "wait for " + name, "wait", traced.start, begins, "");
    std::string arguments = Str(R"("step":)", traced.step);
    if (traced.memory > 0) arguments += Str(R"(,"memory":)", traced.memory);
    Slice(rank, name, CategoryOf(traced.action.kind), begins, traced.end, arguments);
    if (traced.memory == 0) return;
    Event(Str(R"("ph":"C","pid":)", rank, R"(,"name":"memory","ts":)", Micro(traced.end),
              R"(,"args":{"bytes":)", traced.memory, "}"));
  }

  void Slice(int rank, const std::string& name, const char* category, double begin, double end,
             const std::string& arguments) {
    Event(Str(R"("ph":"X","pid":)", rank, R"(,"tid":0,"name":")", name, R"(","cat":")", category,
              R"(","ts":)", Micro(begin), R"(,"dur":)", Micro(end - begin), R"(,"args":{)",
              arguments, "}"));
  }

  void Event(const std::string& members) {
    text_ += is_first_ ? "{" : ",\n{";
    text_ += members;
    text_ += "}";
    is_first_ = false;
  }

  const Trace& trace_;
  std::string text_;
  bool is_first_ = true;
};

}  // namespace

std::string ToChromeTrace(const Trace& trace) { return ChromeWriter(trace).Write(); }

}  // namespace strata::schedule
