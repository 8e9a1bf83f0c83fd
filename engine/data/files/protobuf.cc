#include "engine/data/files/protobuf.h"

#include <bit>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::data {

float ProtobufField::AsFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }

uint64_t ProtobufReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(Bytes(1)[0]);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  throw ConfigError("a number of more than 64 bits");
}

std::string_view ProtobufReader::Bytes(uint64_t count) {
  if (count > rest_.size()) {
    throw ConfigError(Str("it ends in the middle of a field: ", count, " bytes are wanted, ",
                          rest_.size(), " are there"));
  }
  const std::string_view bytes = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return bytes;
}

uint64_t ProtobufReader::Fixed(size_t bytes) {
  const std::string_view from = Bytes(bytes);
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(from[i])) << (8 * i);
  }
  return value;
}

bool ProtobufReader::Next(ProtobufField& field) {
  constexpr uint64_t kMostNumber = (1 << 29) - 1;
  if (rest_.empty()) return false;
  const uint64_t key = Varint();
  if (key >> 3 == 0 || key >> 3 > kMostNumber) throw ConfigError(Str("a field ", key >> 3));
  field = {static_cast<int>(key >> 3), 0, {}};
  switch (key & 7) {
    case 0:
      field.value = Varint();
      return true;
    case 1:
      field.value = Fixed(8);
      return true;
    case 2:
      field.bytes = Bytes(Varint());
      return true;
    case 5:
      field.value = Fixed(4);
      return true;
    default:
      throw ConfigError(Str("the field ", field.number, " has the wire type ", key & 7));
  }
}

}  // namespace strata::data
