// The layout is that of PKWARE's APPNOTE.TXT: a directory at the end of the file, found through a
// record behind it. In archives of more than 4 GiB both have fields of 64 bits.
#include "engine/checkpoint/files/zip_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"

namespace strata {
namespace {

constexpr int64_t kEndBytes = 22, kLongestComment = 65535;
constexpr int64_t kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr int64_t kHeadBytes = 30, kEntryBytes = 46;
constexpr int64_t kMostEntries = 1000000, kLargestDirectory = int64_t{256} << 20;
constexpr uint32_t kSaturated = 0xffffffff;

template <class T>
T At(std::string_view bytes, size_t place) {
  T number;
  std::memcpy(&number, bytes.data() + place, sizeof(T));
  return number;
}

class Reader {
 public:
  explicit Reader(const InputFile& file) : file_(file) {}

  std::vector<ZipEntry> Entries() {
    const Directory directory = FindDirectory();
    const std::string bytes = Bytes(directory.offset, directory.bytes, kLargestDirectory);
    std::vector<ZipEntry> entries;
    size_t place = 0;
    for (int64_t i = 0; i < directory.count; ++i) entries.push_back(ReadEntry(bytes, place));
    return entries;
  }

 private:
  struct Directory {
    int64_t offset, bytes, count;
  };

  [[noreturn]] void Refuse(const std::string& what) const {
    throw WorldError(Str(file_.path(), ": no zip archive, or a damaged one: ", what));
  }

  /// Reads `count` bytes from `offset` on. Both numbers come from the file, so they are checked
  /// first.
  std::string Bytes(int64_t offset, int64_t count, int64_t most) const {
    if (offset < 0 || count < 0 || count > most || offset > file_.size() ||
        count > file_.size() - offset) {
      Refuse("its zip directory points beyond the file");
    }
    std::string bytes(static_cast<size_t>(count), '\0');
    file_.ReadAt(offset, bytes.data(), count);
    return bytes;
  }

  Directory FindDirectory() const {
    const int64_t tail = std::min(file_.size(), kEndBytes + kLongestComment);
    const std::string bytes = Bytes(file_.size() - tail, tail, tail);
    const size_t end = bytes.rfind("PK\x05\x06");
    if (end == std::string::npos || bytes.size() - end < kEndBytes) Refuse("its zip has no end");
    Directory directory = {At<uint32_t>(bytes, end + 16), At<uint32_t>(bytes, end + 12),
                           At<uint16_t>(bytes, end + 10)};
    const int64_t locator = file_.size() - tail + static_cast<int64_t>(end) - kLocatorBytes;
    if (locator >= 0) {
      const std::string found = Bytes(locator, kLocatorBytes, kLocatorBytes);
      if (found.starts_with("PK\x06\x07")) directory = Read64(At<int64_t>(found, 8));
    }
    if (directory.count < 0 || directory.count > kMostEntries) {
      Refuse(Str("a zip of ", directory.count, " entries"));
    }
    return directory;
  }

  Directory Read64(int64_t offset) const {
    const std::string bytes = Bytes(offset, kEnd64Bytes, kEnd64Bytes);
    if (!bytes.starts_with("PK\x06\x06")) Refuse("its zip has no end of 64 bits");
    return {At<int64_t>(bytes, 48), At<int64_t>(bytes, 40), At<int64_t>(bytes, 32)};
  }

  ZipEntry ReadEntry(std::string_view bytes, size_t& place) const {
    if (bytes.size() - place < kEntryBytes || !bytes.substr(place).starts_with("PK\x01\x02")) {
      Refuse("its zip directory is cut off");
    }
    const std::string_view head = bytes.substr(place);
    const size_t name = At<uint16_t>(head, 28), extra = At<uint16_t>(head, 30);
    const size_t whole = kEntryBytes + name + extra + At<uint16_t>(head, 32);
    if (head.size() < whole) Refuse("its zip directory is cut off");
    place += whole;
    ZipEntry entry = {std::string(head.substr(kEntryBytes, name)), At<uint32_t>(head, 42),
                      At<uint32_t>(head, 20), At<uint32_t>(head, 24), At<uint16_t>(head, 10)};
    Read64(head.substr(kEntryBytes + name, extra), entry);
    if (At<uint16_t>(head, 8) & 1)
      Refuse(Str("its entry ", QuotedName(entry.name), " is encrypted"));
    if (entry.method == 0 && entry.packed != entry.bytes) {
      Refuse(Str("its entry ", QuotedName(entry.name), " has two sizes"));
    }
    entry.offset = DataOf(entry);
    return entry;
  }

  /// Reads from the extra field the numbers that did not fit 32 bits. They are in this order.
  static void Read64(std::string_view extra, ZipEntry& entry) {
    while (extra.size() >= 4) {
      const auto id = At<uint16_t>(extra, 0);
      const size_t size = std::min<size_t>(At<uint16_t>(extra, 2), extra.size() - 4);
      std::string_view fields = extra.substr(4, size);
      extra.remove_prefix(4 + size);
      if (id != 1) continue;
      for (int64_t* number : {&entry.bytes, &entry.packed, &entry.offset}) {
        if (*number != kSaturated || fields.size() < 8) continue;
        *number = At<int64_t>(fields, 0);
        fields.remove_prefix(8);
      }
    }
  }

  /// The position of an entry's bytes. They follow a local header, whose length is known only from
  /// the header itself.
  int64_t DataOf(const ZipEntry& entry) const {
    const std::string head = Bytes(entry.offset, kHeadBytes, kHeadBytes);
    if (!head.starts_with("PK\x03\x04")) Refuse(Str(QuotedName(entry.name), " is not in it"));
    const int64_t begin =
        entry.offset + kHeadBytes + At<uint16_t>(head, 26) + At<uint16_t>(head, 28);
    if (entry.bytes < 0 || entry.packed < 0 || begin > file_.size() ||
        entry.packed > file_.size() - begin) {
      Refuse(Str("its entry ", QuotedName(entry.name), " ends beyond the file"));
    }
    return begin;
  }

  const InputFile& file_;
};

}  // namespace

std::vector<ZipEntry> ReadZip(const InputFile& file) { return Reader(file).Entries(); }

}  // namespace strata
