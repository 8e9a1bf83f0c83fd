// ProtobufReader: reads the fields of a message in protobuf's wire format, without a schema.
#pragma once

#include <cstdint>
#include <string_view>

namespace strata::data {

/// One field as it is in the file. The caller interprets it by its number.
struct ProtobufField {
  int number = 0;
  uint64_t value = 0;      // of a varint, or the bits of a fixed32 or fixed64
  std::string_view bytes;  // of a string, bytes or a nested message

  /// Interprets a fixed32 as a float.
  float AsFloat() const;
};

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) : rest_(message) {}
  /// Reads the next field; false at the end. Throws ConfigError for bytes that are not a message.
  bool Next(ProtobufField& field);

 private:
  uint64_t Varint();
  std::string_view Bytes(uint64_t count);
  uint64_t Fixed(size_t bytes);
  std::string_view rest_;
};

}  // namespace strata::data
