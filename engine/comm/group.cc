// Checks calls (CheckCollective()), and expresses the calls with equal parts by Run().
#include "engine/comm/group.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using Kind = Collective::Kind;

constexpr const char* kNames[] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                  "all_to_all", "barrier",   "send",       "recv"};

int PlaceOf(const GroupSpec& spec, int rank) {
  const auto found = std::ranges::find(spec.ranks, rank);
  STRATA_CHECK(found != spec.ranks.end())
      << "rank " << rank << " is not in the group " << spec.name;
  return static_cast<int>(found - spec.ranks.begin());
}

[[noreturn]] void Refuse(const Collective& collective, const std::string& why) {
  throw ConfigError(Str(CollectiveName(collective.kind), ": ", why));
}

std::string Describe(const at::Tensor& tensor) {
  return Str(at::toString(tensor.scalar_type()), " of ", Plural(tensor.numel(), "element"), " on ",
             tensor.device().str());
}

/// Refuses a call whose longer tensor, of `whole` elements, is not `size` times as long as the
/// shorter one, of `part` elements. With bounds, checks the bounds instead.
void CheckParts(const Collective& collective, int64_t whole, int64_t part, int size) {
  const std::vector<int64_t>& bounds = collective.bounds;
  if (bounds.empty()) {
    if (part * size != whole) {
      Refuse(collective, Str("expected ", size, " parts of ", Plural(part, "element"), ", got ",
                             Plural(whole, "element")));
    }
    return;
  }
  const bool fit = bounds.size() == static_cast<size_t>(size) + 1 && bounds.front() == 0 &&
                   bounds.back() == whole && std::ranges::is_sorted(bounds);
  STRATA_CHECK(fit) << Join(bounds, ", ") << " for " << size << " parts of " << whole;
}

}  // namespace

const char* CollectiveName(Kind kind) { return kNames[static_cast<int>(kind)]; }

void CheckCollective(const Collective& collective, int size) {
  if (collective.kind == Kind::kBarrier) return;
  const at::Tensor& input = collective.input;
  const at::Tensor& output = collective.output;
  STRATA_CHECK(input.defined() && output.defined()) << CollectiveName(collective.kind);
  if (!input.is_contiguous() || !output.is_contiguous()) {
    Refuse(collective, "expected contiguous tensors");
  }
  if (input.scalar_type() != output.scalar_type() || input.device() != output.device()) {
    Refuse(collective, Str("expected tensors of one dtype and device, got ", Describe(input),
                           " and ", Describe(output)));
  }
  if (collective.op == ReduceOp::kAvg && !input.is_floating_point()) {
    Refuse(collective, Str("op \"avg\" is for floating-point tensors, got ", Describe(input)));
  }
  if (collective.kind == Kind::kAllGather) {
    return CheckParts(collective, output.numel(), input.numel(), size);
  }
  if (collective.kind == Kind::kReduceScatter) {
    return CheckParts(collective, input.numel(), output.numel(), size);
  }
  if (input.numel() != output.numel()) {
    Refuse(collective,
           Str("expected tensors of one size, got ", Describe(input), " and ", Describe(output)));
  }
  if (collective.kind == Kind::kAllToAll && input.numel() % size != 0) {
    Refuse(collective,
           Str(Plural(input.numel(), "element"), " cannot be cut in ", size, " equal parts"));
  }
  const bool has_root = collective.kind == Kind::kBroadcast || collective.kind == Kind::kSend ||
                        collective.kind == Kind::kRecv;
  if (has_root && (collective.root < 0 || collective.root >= size)) {
    Refuse(collective, Str("the group has the places 0 to ", size - 1, ", got ", collective.root));
  }
}

std::vector<int64_t> EvenBounds(int64_t elements, int parts, int64_t align) {
  const int64_t part = (elements + parts - 1) / parts;
  const int64_t step = (part + align - 1) / align * align;
  std::vector<int64_t> bounds;
  for (int i = 0; i <= parts; ++i) bounds.push_back(std::min(i * step, elements));
  return bounds;
}

Group::Group(GroupSpec spec, int rank) : spec_(std::move(spec)), place_(PlaceOf(spec_, rank)) {}

void Group::AllReduce(const at::Tensor& tensor, ReduceOp op) {
  Run({.kind = Kind::kAllReduce, .op = op, .input = tensor, .output = tensor});
}

void Group::Broadcast(const at::Tensor& tensor, int root) {
  Run({.kind = Kind::kBroadcast, .root = root, .input = tensor, .output = tensor});
}

void Group::AllGather(const at::Tensor& input, const at::Tensor& output) {
  Run({.kind = Kind::kAllGather, .input = input, .output = output});
}

void Group::ReduceScatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op) {
  Run({.kind = Kind::kReduceScatter, .op = op, .input = input, .output = output});
}

void Group::AllToAll(const at::Tensor& input, const at::Tensor& output) {
  Run({.kind = Kind::kAllToAll, .input = input, .output = output});
}

void Group::Send(const at::Tensor& tensor, int place) {
  Run({.kind = Kind::kSend, .root = place, .input = tensor, .output = tensor});
}

void Group::Recv(const at::Tensor& tensor, int place) {
  Run({.kind = Kind::kRecv, .root = place, .input = tensor, .output = tensor});
}

void Group::Barrier() { Run({}); }

}  // namespace strata
