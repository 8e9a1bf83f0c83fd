// ProtobufReader: the fields of a message in protobuf's wire format, without its schema.
#pragma once

#include <cstdint>
#include <string_view>

namespace strata::data {

/// One field as it lies in the file. What it means, its number says.
struct ProtobufField {
  int number = 0;
  uint64_t value = 0;      // of a varint, or the bits of a fixed 32 or 64
  std::string_view bytes;  // of a text, bytes or a message

  /// A fixed 32 as the float that it is.
  float AsFloat() const;
};

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) : rest_(message) {}
  /// The next field in `field`; false at the end. Throws ConfigError for bytes that are no message.
  bool Next(ProtobufField& field);

 private:
  uint64_t Varint();
  std::string_view Bytes(uint64_t count);
  uint64_t Fixed(size_t bytes);
  std::string_view rest_;
};

}  // namespace strata::data
