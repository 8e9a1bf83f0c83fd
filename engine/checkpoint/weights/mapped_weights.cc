// A tensor of the job is made from ranges of the source's tensors, side by side along one dim, each
// transposed if the rule says so. Find() looks up the rule and the sources and checks that the
// pieces have the wanted shape. Read() reads and converts a box run by run if the tensor equals one
// source; otherwise it assembles the whole tensor (Whole()), copies the box from it, and converts
// the elements to the wanted dtype at the end.
#include "engine/checkpoint/weights/mapped_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/checkpoint/weights/convert_elements.h"

namespace strata {
namespace {

using Shape = std::vector<int64_t>;
using Kind = MappedWeights::Lookup::Kind;

}  // namespace

std::string Listed(const std::string& what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  constexpr size_t kShown = 10;
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + std::min(names.size(), kShown));
  const std::string more =
      names.size() > kShown ? Str(", and ", names.size() - kShown, " more") : "";
  return Str(what, ": ", Join(shown, ", "), more);
}

MappedWeights::MappedWeights(const Checkpoint& source, WeightMap map, const std::string& prefix)
    : source_(source), map_(std::move(map)), prefix_(prefix) {
  for (const SavedTensor& tensor : source.manifest().tensors) {
    if (tensor.kind == TensorKind::kMoment || !tensor.name.starts_with(prefix)) continue;
    tensors_[tensor.name.substr(prefix.size())] = &tensor;
  }
  for (const ForeignTensor& tensor : source.manifest().foreign) {
    if (tensor.name.starts_with(prefix)) foreign_[tensor.name.substr(prefix.size())] = &tensor;
  }
  if (tensors_.empty() && foreign_.empty()) {
    throw ConfigError(Str(source.path(), " has no tensor whose name begins with \"", prefix, "\""));
  }
}

const SavedTensor* MappedWeights::Source(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return found->second;
  }
  return nullptr;
}

const std::string* MappedWeights::Foreign(const std::vector<std::string>& names) const {
  const auto found =
      std::ranges::find_if(names, [&](const std::string& name) { return foreign_.contains(name); });
  return found == names.end() ? nullptr : &*found;
}

MappedWeights::Lookup MappedWeights::Find(const WantedTensor& wanted) const {
  Lookup lookup = {Kind::kMissing, {wanted.name, wanted.spec, {}, 0, false}, wanted.name, {}};
  const auto found = map_.Find(wanted.name);
  if (!found) {
    lookup.trouble += " (the map has no rule for it)";
    return lookup;
  }
  MappedTensor& tensor = lookup.tensor;
  tensor.dim = found->rule.dim;
  tensor.transpose = found->rule.transpose;
  std::string unfit;
  for (const std::vector<std::string>& names : found->theirs) {
    const SavedTensor* source = Source(names);
    if (const std::string* foreign = source ? nullptr : Foreign(names)) {
      lookup.kind = Kind::kUnfit;
      lookup.theirs.push_back(*foreign);
      lookup.trouble = TroubleWith(*foreign_.find(*foreign)->second);
      return lookup;
    }
    if (!source) {
      if (names.front() != wanted.name) lookup.trouble += TheirsMissing(names.front());
      return lookup;
    }
    lookup.theirs.push_back(source->name.substr(prefix_.size()));
    const auto piece = PartOf(*source, tensor, found->rule.part, found->rule.parts);
    if (!piece) unfit = Str(", cannot be cut into ", found->rule.parts, " along dim ", tensor.dim);
    tensor.pieces.push_back(piece.value_or(MappedTensor::Piece{source, 0, 0}));
  }
  Shape made;
  if (unfit.empty()) {
    const std::string why = TroubleWithPieces(tensor, made);
    if (!why.empty()) unfit = ", " + why;
  }
  const DType dtype = tensor.pieces[0].source->spec.dtype;
  const bool fits =
      unfit.empty() && made == wanted.spec.shape && CanConvert(dtype, wanted.spec.dtype);
  lookup.kind = fits ? Kind::kFound : Kind::kUnfit;
  if (fits) return lookup;
  std::vector<std::string> theirs;
  for (const MappedTensor::Piece& piece : tensor.pieces) {
    theirs.push_back(Str("tensor ", QuotedName(piece.source->name), " is ",
                         piece.source->spec.ToString(), tensor.transpose ? ", transposed" : ""));
  }
  lookup.trouble = Str(Join(theirs, " and "), unfit, ", this job's ", QuotedName(wanted.name),
                       " is ", wanted.spec.ToString());
  return lookup;
}

/// A hint for a missing source: " (theirs "h.0.ln.wight"; did you mean "h.0.ln.weight"?)".
std::string MappedWeights::TheirsMissing(const std::string& name) const {
  std::vector<std::string> known;
  for (const auto& [own, saved] : tensors_) known.push_back(own);
  return Str(" (theirs ", QuotedName(name), DidYouMean(name, known, 0), ")");
}

std::vector<std::string> MappedWeights::Unused(const std::set<std::string>& used) const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!used.contains(name) && !map_.Ignores(name)) names.push_back(name);
  };
  for (const auto& [name, tensor] : tensors_) add(name);
  for (const auto& [name, tensor] : foreign_) add(name);
  return names;
}

void MappedWeights::CheckCopies(const std::vector<MappedTensor>& tensors) const {
  std::set<const SavedTensor*> used;
  for (const MappedTensor& tensor : tensors) {
    for (const MappedTensor::Piece& piece : tensor.pieces) used.insert(piece.source);
  }
  const auto digest = [&](const SavedTensor& tensor) {
    Hasher hasher;
    source_.ReadWhole(tensor, [&](const void* bytes, int64_t count) {
      hasher.Add(bytes, static_cast<size_t>(count));
    });
    return hasher.Digest();
  };
  for (const auto& [name, copy] : tensors_) {
    const auto names = map_.CopyOf(name);
    const SavedTensor* of = names ? Source(*names) : nullptr;
    if (!used.contains(of)) continue;
    if (copy->spec == of->spec && digest(*copy) == digest(*of)) continue;
    throw ConfigError(Str(source_.path(), ": ", QuotedName(copy->name), " is not what ",
                          QuotedName(of->name), " holds, but for the map they are one"));
  }
}

/// The whole tensor, in the dtype of its sources.
std::vector<char> MappedWeights::Whole(const MappedTensor& tensor) const {
  const DType dtype = tensor.pieces[0].source->spec.dtype;
  const int64_t item = DTypeSize(dtype);
  std::vector<char> whole(static_cast<size_t>(TensorSpec{tensor.spec.shape, dtype}.bytes()));
  const auto dim = static_cast<size_t>(tensor.dim);
  const bool has_dim = dim < tensor.spec.shape.size();
  int64_t outer = 1, inner = item;
  for (size_t i = 0; has_dim && i < tensor.spec.shape.size(); ++i) {
    (i < dim ? outer : inner) *= i == dim ? 1 : tensor.spec.shape[i];
  }
  const int64_t row = has_dim ? tensor.spec.shape[dim] * inner : inner;
  int64_t done = 0;
  for (const MappedTensor::Piece& piece : tensor.pieces) {
    const TensorSpec& spec = piece.source->spec;
    std::vector<char> bytes(static_cast<size_t>(spec.bytes()));
    SourceOf(tensor).Read(*piece.source, Slice::Whole(spec.shape), bytes.data());
    if (tensor.transpose) bytes = Transposed(bytes, spec.shape[0], spec.shape[1], item);
    const int64_t from_row = outer == 0 ? 0 : spec.bytes() / outer;
    const int64_t count = has_dim ? piece.size * inner : inner;
    for (int64_t i = 0; i < outer && count > 0; ++i) {
      std::memcpy(whole.data() + i * row + done,
                  bytes.data() + i * from_row + (has_dim ? piece.begin * inner : 0),
                  static_cast<size_t>(count));
    }
    done += count;
  }
  return whole;
}

void MappedWeights::ReadChanged(MappedTensor tensor, void* to) const {
  const auto change = std::exchange(tensor.change, {});
  const DType dtype = std::exchange(tensor.spec.dtype, DType::kFloat64);
  std::vector<double> values(static_cast<size_t>(tensor.spec.elements()));
  Read(tensor, Slice::Whole(tensor.spec.shape), values.data());
  change(values.data());
  ConvertElements(DType::kFloat64, values.data(), dtype, to, tensor.spec.elements());
}

void MappedWeights::Read(const MappedTensor& tensor, const Slice& box, void* to) const {
  if (tensor.change) {
    STRATA_CHECK(box.is_whole(tensor.spec.shape)) << tensor.name;
    return ReadChanged(tensor, to);
  }
  const SavedTensor& first = *tensor.pieces[0].source;
  const DType dtype = first.spec.dtype;
  const bool is_itself =
      tensor.pieces.size() == 1 && !tensor.transpose && first.spec.shape == tensor.spec.shape;
  if (is_itself) {
    const int64_t size = DTypeSize(tensor.spec.dtype);
    return SourceOf(tensor).ReadRuns(
        first, box, [&](int64_t begin, int64_t count, const void* bytes) {
          char* const place = static_cast<char*>(to) + begin * size;
          ConvertElements(dtype, bytes, tensor.spec.dtype, place, count);
        });
  }
  const int64_t item = DTypeSize(dtype);
  std::vector<char> bytes(static_cast<size_t>(box.count * item));
  if (box.is_whole(tensor.spec.shape)) {
    bytes = Whole(tensor);
  } else {
    const std::vector<char> whole = Whole(tensor);
    ForEachRun(Slice::Whole(tensor.spec.shape), box, [&](int64_t i, int64_t j, int64_t n) {
      std::memcpy(bytes.data() + j * item, whole.data() + i * item, static_cast<size_t>(n * item));
    });
  }
  ConvertElements(dtype, bytes.data(), tensor.spec.dtype, to, box.count);
}

}  // namespace strata
