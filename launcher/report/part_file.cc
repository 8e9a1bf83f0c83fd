// A log line is valid if F.part has the bytes of which it tells. Bytes after the last valid part
// are cut off.
#include "launcher/report/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/file.h"

namespace strata::launcher {
namespace {

/// The complete lines of the file.
std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::string> lines = Split(text, '\n');
  lines.pop_back();
  return lines;
}

/// The line as a map; null if it is not a map, because a machine that crashed may leave any bytes.
Value MapIn(const std::string& line) {
  try {
    Value value = Value::FromJson(line);
    return value.is_map() ? value : Value();
  } catch (const ConfigError&) {
    return {};
  }
}

Fd OpenOrMake(const std::string& path, int how) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | how, 0666));
  if (!fd.is_open()) ThrowErrno("cannot write " + path);
  return fd;
}

}  // namespace

PartFile::PartFile(std::string path, const std::string& what, int64_t head)
    : path_(std::move(path)), part_(path_ + ".part"), log_(part_ + ".log"), ends_{head} {
  PlaceBeside(path_);  // throws if something is at the path
  file_ = OpenOrMake(part_, 0);
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw WorldError(Str("another process writes ", part_));
  }
  const std::vector<std::string> lines = LinesOf(log_);
  const bool is_new = lines.empty() || ::lseek(file_.get(), 0, SEEK_END) == 0;
  lines_ = OpenOrMake(log_, O_APPEND | (is_new ? O_TRUNC : 0));
  if (is_new) {
    WriteAll(lines_.get(), Value::MakeMap({{"what", what}}).ToJson() + "\n", log_);
  } else if (MapIn(lines[0])["what"] != Value(what)) {
    throw ConfigError(Str(part_, " was left by another run, of other weights, data or flags: ",
                          "remove it to begin anew"));
  } else {
    GoOn(lines);
  }
  const int64_t end = ends_.back();
  if (::ftruncate(file_.get(), end) != 0 || ::lseek(file_.get(), end, SEEK_SET) != end) {
    ThrowErrno("cannot write " + part_);
  }
}

void PartFile::GoOn(const std::vector<std::string>& lines) {
  size_t log_bytes = lines[0].size() + 1;
  const int64_t size = ::lseek(file_.get(), 0, SEEK_END);
  for (size_t i = 1; i < lines.size(); ++i) {
    const Value line = MapIn(lines[i]);
    const int64_t end = line["bytes"].is_int() ? line["bytes"].as_int() : -1;
    if (end < ends_.back() || end > size) break;
    if (Value(StrongDigest(Bytes(ends_.back(), end))) != line["digest"]) break;
    ends_.push_back(end);
    state_ = line["state"];
    ++parts_;
    log_bytes += lines[i].size() + 1;
  }
  if (::ftruncate(lines_.get(), static_cast<off_t>(log_bytes)) != 0) {
    ThrowErrno("cannot write " + log_);
  }
}

std::string PartFile::Bytes(int64_t begin, int64_t end) const {
  std::string bytes(static_cast<size_t>(end - begin), '\0');
  const ssize_t read = ::pread(file_.get(), bytes.data(), bytes.size(), begin);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(read, 0)));
  return bytes;
}

std::string PartFile::Part(int64_t part) const {
  const auto place = static_cast<size_t>(part);
  std::string bytes = Bytes(ends_.at(place), ends_.at(place + 1));
  if (std::ssize(bytes) < ends_[place + 1] - ends_[place]) ThrowErrno("cannot read " + part_);
  return bytes;
}

PartFile::~PartFile() {
  if (file_.is_open() && parts_ == 0) {
    ::unlink(part_.c_str());
    ::unlink(log_.c_str());
  }
}

void PartFile::Add(std::string_view bytes, const Value& state) {
  WriteAll(file_.get(), bytes, part_);
  ends_.push_back(ends_.back() + std::ssize(bytes));
  Value line;
  line.Set("bytes", ends_.back()).Set("digest", StrongDigest(bytes)).Set("state", state);
  WriteAll(lines_.get(), line.ToJson() + "\n", log_);
  state_ = state;
  ++parts_;
}

void PartFile::Discard() { parts_ = 0; }

void PartFile::Finish(std::string_view head) {
  if (::lseek(file_.get(), 0, SEEK_SET) != 0) ThrowErrno("cannot write " + part_);
  WriteAll(file_.get(), head, part_);
  if (::fsync(file_.get()) != 0) ThrowErrno("cannot write " + part_);
  MoveIntoPlace(part_, path_);
  file_.Close();
  ::unlink(log_.c_str());
}

void PartFile::FinishAs(const std::string& beside) {
  ::unlink(part_.c_str());  // removed first, because F and F.part must never exist together
  MoveIntoPlace(beside, path_);
  file_.Close();
  ::unlink(log_.c_str());
}

}  // namespace strata::launcher
