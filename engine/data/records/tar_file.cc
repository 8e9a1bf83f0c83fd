// A tar is a sequence of blocks of 512 bytes. A member is a header, and its content filled up to
// whole blocks. Two blocks of zeros end the tar; what follows them is zeros, too.
//
//   header: name 100 | mode 8 | uid 8 | gid 8 | size 12 | mtime 12 | checksum 8 | type 1 |
//           link 100 | magic 8 | owner 32 | group 32 | device 16 | prefix 155
//
// Numbers are octal digits; GNU writes a large size as 0x80 and a big-endian number. The name is
// prefix/name. Names that do not fit stand in front of a member: as the content of a member of type
// 'L' (GNU), or as the record "LENGTH path=NAME\n" in one of type 'x' (pax), which may also have
// the size.
#include "engine/data/records/tar_file.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"

namespace strata::data {
namespace {

constexpr size_t kBlock = 512;
constexpr int64_t kMostOfNames = 1 << 20;  // bytes of a member that holds a name

/// The text up to the first zero byte.
std::string_view Text(std::string_view field) { return field.substr(0, field.find('\0')); }

bool IsZero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

/// Reads a number of a header: octal digits, with spaces or zero bytes around them. An empty field
/// is 0. Returns nothing for other texts.
std::optional<int64_t> Octal(std::string_view field) {
  const std::string_view digits = Trim(Text(field));
  int64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number, 8);
  if (digits.empty()) return 0;
  if (error != std::errc() || stop != end || number < 0) return std::nullopt;
  return number;
}

class TarReader {
 public:
  TarReader(std::string_view tar, const std::string& path) : tar_(tar), path_(path) {}

  void Read(const std::function<void(const TarMember&)>& body) {
    while (NextHeader()) {
      const char type = header_[156];
      if (type == '0' || type == '\0' || type == '7') {
        body({Name(), Number(at_ + kBlock), size_});
        ClearNames();
      } else if (type == 'L') {
        long_name_ = std::string(Text(SmallContent()));
      } else if (type == 'x') {
        ReadPax(SmallContent());
      } else if (type == '5') {
        ClearNames();
      } else if (type != 'g' && type != 'K') {  // comments of all members; long names of links
        Refuse(Str("the member ", QuotedName(Name()), " of type ", QuotedName({&type, 1}),
                   " is no regular file; pack files themselves (tar --dereference ",
                   "--hard-dereference)"));
      }
      at_ += kBlock + (static_cast<size_t>(size_) + kBlock - 1) / kBlock * kBlock;
    }
  }

 private:
  static int64_t Number(size_t size) { return static_cast<int64_t>(size); }
  [[noreturn]] void Refuse(const std::string& what) const {
    throw WorldError(Str(path_, ": byte ", at_, ": ", what));
  }

  /// Reads and checks the header at at_; false at the end of the tar.
  bool NextHeader() {
    if (at_ > tar_.size() || tar_.size() - at_ < kBlock) {
      at_ = std::min(at_, tar_.size());
      Refuse("the tar is cut off: expected a header or the two blocks of zeros that end a tar");
    }
    header_ = tar_.substr(at_, kBlock);
    if (IsZero(header_)) {
      if (IsZero(tar_.substr(at_))) return false;
      Refuse("expected nothing behind the end of the tar; unpack tars that were put together");
    }
    CheckSum();
    size_ = Size();
    if (static_cast<uint64_t>(size_) > tar_.size() - at_ - kBlock) {
      Refuse(Str("the member ", QuotedName(Name()), " has ", size_, " bytes, which run past the ",
                 "end of the file, ", tar_.size(), " bytes"));
    }
    return true;
  }

  /// The sum of the header's bytes, with spaces in place of the sum. Some programs add signed
  /// bytes.
  void CheckSum() const {
    int64_t sum = 8 * ' ', of_signed = sum;
    for (size_t i = 0; i < kBlock; ++i) {
      if (i >= 148 && i < 156) continue;
      sum += static_cast<unsigned char>(header_[i]);
      of_signed += static_cast<signed char>(header_[i]);
    }
    const std::optional<int64_t> stored = Octal(header_.substr(148, 8));
    if (stored == sum || stored == of_signed) return;
    Refuse(at_ == 0 ? std::string("expected a tar, got another file")
                    : Str("the header's checksum is wrong: expected ", sum, ", got ",
                          stored ? Str(*stored) : QuotedName(header_.substr(148, 8))));
  }

  int64_t Size() {
    const std::string_view field = header_.substr(124, 12);
    std::optional<int64_t> size = Octal(field);
    if (static_cast<unsigned char>(field[0]) == 0x80) {
      uint64_t number = 0;
      for (const char byte : field.substr(4)) number = number << 8 | static_cast<uint8_t>(byte);
      const bool fits = IsZero(field.substr(1, 3)) && number >> 62 == 0;
      size = fits ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
    }
    if (!size) Refuse(Str("the member ", QuotedName(Name()), " has a size that is no number"));
    const char type = header_[156];
    return pax_size_ && type != 'x' && type != 'L' ? *pax_size_ : *size;
  }

  std::string Name() const {
    if (!long_name_.empty()) return long_name_;
    const std::string name(Text(header_.substr(0, 100)));
    const std::string_view prefix = Text(header_.substr(345, 155));
    const bool has_prefix = header_.substr(257, 6) == std::string_view("ustar\0", 6);
    return has_prefix && !prefix.empty() ? Str(prefix, "/", name) : name;
  }

  void ClearNames() {
    long_name_.clear();
    pax_size_.reset();
  }

  /// The content of a member that holds a name.
  std::string_view SmallContent() const {
    if (size_ > kMostOfNames) Refuse(Str("a name of ", size_, " bytes"));
    return tar_.substr(at_ + kBlock, static_cast<size_t>(size_));
  }

  /// Records "LENGTH KEY=VALUE\n"; the length counts the whole record.
  void ReadPax(std::string_view text) {
    while (!text.empty()) {
      const size_t space = std::min(text.find(' '), text.size());
      const auto length = ParseWhole<int64_t>(text.substr(0, space));
      const size_t equals = text.find('=');
      const bool is_record = length && *length > 0 && *length <= Number(text.size()) &&
                             equals < static_cast<size_t>(*length) && equals > space &&
                             text[static_cast<size_t>(*length) - 1] == '\n';
      if (!is_record) Refuse("a pax header that is not made of records LENGTH KEY=VALUE");
      const std::string_view record = text.substr(0, static_cast<size_t>(*length) - 1);
      const std::string_view key = record.substr(space + 1, equals - space - 1);
      const std::string_view value = record.substr(equals + 1);
      if (key == "path") long_name_ = std::string(Text(value));
      if (key == "size") {
        pax_size_ = ParseWhole<int64_t>(value);
        if (!pax_size_ || *pax_size_ < 0) Refuse("a pax header whose size is no number");
      }
      if (key.starts_with("GNU.sparse.")) Refuse("a file with holes; pack it without --sparse");
      text.remove_prefix(static_cast<size_t>(*length));
    }
  }

  const std::string_view tar_;
  const std::string& path_;
  size_t at_ = 0;
  std::string_view header_;
  int64_t size_ = 0;
  std::string long_name_;  // of the next member; "" = as its header says
  std::optional<int64_t> pax_size_;
};

}  // namespace

void ForEachTarMember(std::string_view tar, const std::string& path,
                      const std::function<void(const TarMember& member)>& body) {
  TarReader(tar, path).Read(body);
}

}  // namespace strata::data
