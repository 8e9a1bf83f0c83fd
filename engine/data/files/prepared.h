// Prepared data: what reading a large file yields, in binary form. The cache folder keeps it as a
// file, which all processes map, so a machine reads the large file once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/data/tokens/tokenizer.h"

namespace strata::data {

struct Prepared {
  Value facts;  ///< what the caller's function returned
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  ///< keeps the bytes alive
};

/// Takes the bytes of prepared data in their order.
class PreparedWriter {
 public:
  virtual ~PreparedWriter() = default;
  void Write(const void* bytes, size_t count);
  /// Writes tokens with `width` bytes each: 1, 2 or 4.
  void WriteTokens(const TokenList& tokens, int width);
  /// Writes zeros up to a multiple of 8 bytes, and returns the number of bytes written so far.
  int64_t Align();
  int64_t written() const { return written_; }

 protected:
  virtual void Flush(const void* bytes, size_t count) = 0;
  void FlushRest();

 private:
  std::vector<std::byte> buffer_;
  int64_t written_ = 0;
};

/// What prepared data depends on.
struct PreparedKey {
  std::string what;                ///< the kind of data, the version of its form, and the options
  std::vector<std::string> files;  ///< the files that are read
  std::string tokenizer = {};      ///< the tokenizer's file; "" = none
};

/// Files smaller than this together are read anew by every process, without a copy in the cache.
inline constexpr int64_t kLeastPrepared = int64_t{8} << 20;

/// The size, the time of the last change and the inode of a file, as text; "" if there is none.
std::string StampOf(const std::string& path);

/// Returns the data that `build` writes; its result becomes Prepared::facts, so it must survive
/// JSON. The cache folder keeps the data of large files in "prepared/", under the key, and with the
/// size, the time of the last change and the inode of each file. Of several processes that ask at
/// once one calls `build`, and the others wait for it. If the copy cannot be written, a line on
/// standard error says so, and the data stays in memory. Copies that nobody has used for 30 days
/// are deleted when a new one is written.
Prepared Prepare(const PreparedKey& key, const std::function<Value(PreparedWriter&)>& build);

}  // namespace strata::data
