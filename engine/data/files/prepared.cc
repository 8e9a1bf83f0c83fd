// A copy in the cache folder is the data, the facts as JSON, the key, and a Footer. It is written
// under a temporary name, synced and renamed, so a file with a valid footer is complete. The name
// is made of the key without the files' stamps: the copy of a changed file replaces the old one.
#include "engine/data/files/prepared.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/cache.h"
#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/data/files/data_progress.h"
#include "engine/data/files/mapped_file.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = {'s', 't', 'r', 'a', 't', 'a', 'p', '1'};
constexpr size_t kBuffer = size_t{1} << 20;

/// The last bytes of a copy. `digest` is Digest() of the facts and the key.
struct Footer {
  uint64_t data_bytes = 0, facts_bytes = 0, key_bytes = 0;
  char digest[16];
  char magic[sizeof(kMagic)];
};

/// Thrown where the cache folder cannot keep a copy.
struct CacheTrouble {
  std::string text;
};

/// Calls `body`; its WorldErrors become CacheTrouble.
template <class Body>
auto InCache(const Body& body) {
  try {
    return body();
  } catch (const WorldError& error) {
    throw CacheTrouble{error.what()};
  }
}

class MemoryWriter : public PreparedWriter {
 public:
  std::shared_ptr<const std::vector<std::byte>> Take() {
    FlushRest();
    return std::make_shared<const std::vector<std::byte>>(std::move(bytes_));
  }

 private:
  void Flush(const void* bytes, size_t count) override {
    const auto* begin = static_cast<const std::byte*>(bytes);
    bytes_.insert(bytes_.end(), begin, begin + count);
  }
  std::vector<std::byte> bytes_;
};

class FileWriter : public PreparedWriter {
 public:
  explicit FileWriter(const std::string& path)
      : file_(InCache([&] { return std::make_unique<OutputFile>(path); })) {}
  void Finish(const std::string& facts, const std::string& key) {
    Footer footer;
    footer.data_bytes = static_cast<uint64_t>(written());
    footer.facts_bytes = facts.size();
    footer.key_bytes = key.size();
    std::memcpy(footer.digest, Digest(facts + key).data(), sizeof(footer.digest));
    std::memcpy(footer.magic, kMagic, sizeof(kMagic));
    Write(facts.data(), facts.size());
    Write(key.data(), key.size());
    Write(&footer, sizeof(footer));
    FlushRest();
    InCache([&] { file_->Sync(); });
  }

 private:
  void Flush(const void* bytes, size_t count) override {
    InCache([&] { file_->Write(bytes, static_cast<int64_t>(count)); });
  }
  std::unique_ptr<OutputFile> file_;
};

/// StampOf() that adds the size to `bytes`.
std::string StampAndCount(const std::string& path, int64_t& bytes) {
  struct stat now = {};
  if (::stat(path.c_str(), &now) != 0) return "";
  bytes += now.st_size;
  return Str(now.st_size, " bytes, ", now.st_mtim.tv_sec, ".", now.st_mtim.tv_nsec, " s, inode ",
             now.st_ino);
}

/// Finds the copy for the key. Returns none if there is no copy, or it is broken, or was made of
/// files that have changed.
std::optional<Prepared> Find(const std::string& path, const std::string& key) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  const auto file = std::make_shared<const MappedFile>(path, "prepared data");
  const std::string_view text = file->text();
  Footer footer;
  if (text.size() < sizeof(footer)) return std::nullopt;
  const size_t size = text.size() - sizeof(footer);
  std::memcpy(&footer, text.data() + size, sizeof(footer));
  const bool is_whole = std::memcmp(footer.magic, kMagic, sizeof(kMagic)) == 0 &&
                        footer.data_bytes <= size && footer.facts_bytes <= size &&
                        footer.key_bytes == key.size() &&
                        footer.data_bytes + footer.facts_bytes + footer.key_bytes == size;
  if (!is_whole) return std::nullopt;
  const std::string_view facts_and_key = text.substr(footer.data_bytes, size - footer.data_bytes);
  const bool is_this =
      facts_and_key.ends_with(key) && Digest(facts_and_key) == std::string_view(footer.digest, 16);
  if (!is_this) return std::nullopt;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now; see DeleteUnused()
  const std::span<const std::byte> bytes = file->bytes().first(footer.data_bytes);
  return Prepared{Value::FromJson(facts_and_key.substr(0, footer.facts_bytes)), bytes, file};
}

/// Deletes the copies and temporary files that nobody has used for 30 days.
void DeleteUnused(const std::string& folder) {
  constexpr std::chrono::hours kMost(30 * 24);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto used = entry.last_write_time(error);
    if (!error && fs::file_time_type::clock::now() - used > kMost) fs::remove(entry.path(), error);
  }
}

/// Waits until no other process prepares the same data. Without locks, as on some network file
/// systems, it does not wait: then several processes may prepare the data, each in a file of its
/// own, and the last one stays.
Fd Lock(const std::string& path, const std::string& file) {
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock.is_open()) InCache([&] { ThrowErrno(Str("cannot write ", path)); });
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return lock;
  const DataProgress progress(Str("waiting for another process that is ", Reading(file)), 0);
  while (::flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return lock;
}

Prepared InMemory(const std::function<Value(PreparedWriter&)>& build) {
  MemoryWriter writer;
  Value facts = build(writer);
  const auto bytes = writer.Take();
  return {std::move(facts), *bytes, bytes};
}

Prepared InFile(const std::string& name, const std::string& key, const std::string& file,
                const std::function<Value(PreparedWriter&)>& build) {
  const std::string folder = InCache([] { return CacheFolder() + "/prepared"; });
  const std::string path = folder + "/" + name;
  if (auto found = InCache([&] { return Find(path, key); })) return *found;
  InCache([&] { MakeFolder(folder); });
  const std::string lock_path = path + ".lock";
  const Fd lock = Lock(lock_path, file);
  if (auto found = InCache([&] { return Find(path, key); })) return *found;
  DeleteUnused(folder);
  static std::atomic<int> count = 0;  // threads may write at once where there are no locks
  const std::string beside = Str(path, ".tmp-", ::getpid(), "-", count++);
  FileWriter writer(beside);
  const Value facts = build(writer);
  writer.Finish(facts.ToJson(), key);
  InCache([&] { MoveIntoPlace(beside, path); });
  ::unlink(lock_path.c_str());
  if (auto found = InCache([&] { return Find(path, key); })) return *found;
  throw CacheTrouble{Str(path, " was changed by another program")};
}

}  // namespace

void PreparedWriter::Write(const void* bytes, size_t count) {
  written_ += static_cast<int64_t>(count);
  if (buffer_.size() + count > kBuffer) FlushRest();
  if (count >= kBuffer) return Flush(bytes, count);
  buffer_.reserve(kBuffer);
  const auto* begin = static_cast<const std::byte*>(bytes);
  buffer_.insert(buffer_.end(), begin, begin + count);
}

void PreparedWriter::FlushRest() {
  if (!buffer_.empty()) Flush(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void PreparedWriter::WriteTokens(const TokenList& tokens, int width) {
  const auto write = [&]<class T>(T) {
    const std::vector<T> narrow(tokens.begin(), tokens.end());
    Write(narrow.data(), narrow.size() * sizeof(T));
  };
  if (width == 1) return write(uint8_t{});
  if (width == 2) return write(uint16_t{});
  write(int32_t{});
}

int64_t PreparedWriter::Align() {
  constexpr char kZeros[8] = {};
  Write(kZeros, static_cast<size_t>(-written_ & 7));
  return written_;
}

std::string StampOf(const std::string& path) {
  int64_t ignored = 0;
  return StampAndCount(path, ignored);
}

Prepared Prepare(const PreparedKey& key, const std::function<Value(PreparedWriter&)>& build) {
  std::string name = key.what, stamps = key.what;
  int64_t bytes = 0, ignored = 0;
  const auto add = [&](const std::string& file, int64_t& size) {
    std::error_code error;  // without a current folder the path stays as it is
    const std::string path = fs::absolute(file, error).lexically_normal().string();
    name += "\n" + path;
    stamps += Str("\n", path, ": ", StampAndCount(file, size));
  };
  for (const std::string& file : key.files) add(file, bytes);
  if (!key.tokenizer.empty()) add(key.tokenizer, ignored);
  if (bytes < kLeastPrepared) return InMemory(build);
  try {
    return InFile(Digest(name), stamps, key.files[0], build);
  } catch (const CacheTrouble& trouble) {
    SayProgress(Str("note: ", Reading(key.files[0]), " into the memory of each process, since ",
                    "the cache cannot keep a copy: ", trouble.text));
    return InMemory(build);
  }
}

}  // namespace strata::data
