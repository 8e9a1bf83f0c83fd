// A tensor is stored as the memory from its first element to its last, with what lies between
// elements that are not neighbours. Each begins at a multiple of 64 bytes of the row.
#include "engine/runtime/check/tensor_packet.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"

namespace strata {
namespace {

constexpr int64_t kAlign = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// The memory from the tensor's first element to its last, with one dim.
at::Tensor MemoryOf(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return at::empty({0}, tensor.options());
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return tensor.detach().as_strided({last + 1}, {1});
}

}  // namespace

at::Tensor ToBytes(const TensorPacket& packet) {
  const at::NoGradGuard no_grad;
  Value::List places;
  Tensors parts;
  int64_t end = 0;
  for (const at::Tensor& tensor : packet.tensors) {
    parts.push_back(MemoryOf(tensor));
    places.push_back(Value::List{static_cast<int64_t>(tensor.scalar_type()),
                                 Value::IntList(tensor.sizes().vec()),
                                 Value::IntList(tensor.strides().vec()), end});
    end = Aligned(end + static_cast<int64_t>(parts.back().nbytes()));
  }
  const std::string text =
      Value::MakeMap({{"header", packet.header}, {"tensors", places}}).ToJson();
  const int64_t head = Aligned(static_cast<int64_t>(sizeof(int64_t) + text.size()));
  at::Tensor bytes = at::empty({head + end}, at::kByte);
  auto* to = static_cast<char*>(bytes.mutable_data_ptr());
  const auto size = static_cast<int64_t>(text.size());
  std::memset(to, 0, static_cast<size_t>(head + end));
  std::memcpy(to, &size, sizeof(size));
  std::memcpy(to + sizeof(size), text.data(), text.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t begin = places[i].as_list()[3].as_int();
    if (parts[i].nbytes() > 0)
      std::memcpy(to + head + begin, parts[i].const_data_ptr(), parts[i].nbytes());
  }
  return bytes;
}

TensorPacket FromBytes(const at::Tensor& bytes) {
  const at::NoGradGuard no_grad;
  const auto* from = static_cast<const char*>(bytes.const_data_ptr());
  int64_t size = 0;
  std::memcpy(&size, from, sizeof(size));
  STRATA_CHECK(size >= 0 && size + static_cast<int64_t>(sizeof(size)) <= bytes.numel()) << size;
  const Value text =
      Value::FromJson(std::string_view(from + sizeof(size), static_cast<size_t>(size)));
  const int64_t head = Aligned(static_cast<int64_t>(sizeof(size)) + size);
  TensorPacket packet = {text["header"], {}};
  for (const Value& place : text["tensors"].as_list()) {
    const Value::List& fields = place.as_list();
    const auto type = static_cast<at::ScalarType>(fields[0].as_int());
    const std::vector<int64_t> sizes = fields[1].as_ints(), strides = fields[2].as_ints();
    auto* data = static_cast<char*>(bytes.data_ptr()) + head + fields[3].as_int();
    packet.tensors.push_back(at::from_blob(
        data, sizes, strides, [bytes](void*) {}, at::dtype(type)));
  }
  return packet;
}

at::Tensor ExactCopy(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return MemoryOf(tensor).clone().as_strided(tensor.sizes(), tensor.strides());
}

Tensors ExactCopies(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(ExactCopy(tensor));
  return copies;
}

std::string BitsOf(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor row = tensor.detach().contiguous();
  const std::string kind = Str(static_cast<int>(row.scalar_type()), row.sizes());
  Hasher hasher;
  hasher.Add(kind.data(), kind.size());
  if (row.nbytes() > 0) hasher.Add(row.const_data_ptr(), row.nbytes());
  return hasher.Digest();
}

std::string FirstDifference(const Digests& one, const Digests& other) {
  for (size_t i = 0; i < one.size() && i < other.size(); ++i) {
    if (one[i] != other[i]) return one[i].first;
  }
  return one.size() == other.size() ? "" : "the number of results";
}

std::string BitsOf(const Digests& digests) { return StrongDigest(ToValue(digests).ToJson()); }

Value ToValue(const Digests& digests) {
  Value::List list;
  for (const auto& [what, bits] : digests) list.push_back(Value::List{what, bits});
  return list;
}

Digests DigestsOf(const Value& value) {
  Digests digests;
  if (value.is_null()) return digests;
  for (const Value& entry : value.as_list()) {
    digests.emplace_back(entry.as_list()[0].as_string(), entry.as_list()[1].as_string());
  }
  return digests;
}

}  // namespace strata
