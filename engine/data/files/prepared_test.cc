#include "engine/data/files/prepared.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>

#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/data/testing.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int kNumbers = 1 << 20;

class PreparedTest : public DatasetTest {
 protected:
  void SetUp() override {
    DatasetTest::SetUp();
    ::setenv("STRATA_CACHE", (folder_ / "cache").c_str(), 1);
    source_ = Write("source", "1");
    fs::resize_file(source_, kLeastPrepared);
  }
  /// Prepares kNumbers numbers from `first` on, which is the source's first letter.
  Prepared Open(const std::string& what = "numbers") {
    return Prepare({what, {source_}}, [&](PreparedWriter& to) {
      ++builds_;
      const int fd = ::open((folder_ / "builds").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
      EXPECT_EQ(::write(fd, "x", 1), 1);  // for the test of several processes
      ::close(fd);
      int32_t first = 0;
      std::ifstream(source_) >> first;
      for (int32_t i = first; i < first + kNumbers; ++i) to.Write(&i, sizeof(i));
      return Value::MakeMap({{"first", first}});
    });
  }
  /// Opens, and checks the data and how often the source has been read.
  void ExpectOpens(int first, int builds, const std::string& why,
                   const std::string& what = "numbers") {
    const Prepared prepared = Open(what);
    std::vector<int32_t> numbers(kNumbers);
    ASSERT_EQ(prepared.bytes.size(), kNumbers * sizeof(int32_t)) << why;
    std::memcpy(numbers.data(), prepared.bytes.data(), prepared.bytes.size());
    EXPECT_EQ(numbers.front(), first) << why;
    EXPECT_EQ(numbers.back(), first + kNumbers - 1) << why;
    EXPECT_EQ(prepared.facts["first"], Value(first)) << why;
    EXPECT_EQ(builds_, builds) << why;
  }
  std::vector<fs::path> Copies() const {
    std::vector<fs::path> copies;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache/prepared")) {
      copies.push_back(entry.path());
    }
    return copies;
  }
  /// Overwrites the first letter of the source, and sets the time of its last change.
  void Change(char letter, timespec time) {
    std::fstream(source_, std::ios::in | std::ios::out).put(letter);
    const timespec times[] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, source_.c_str(), times, 0), 0);
  }

  std::string source_;
  int builds_ = 0;
};

TEST_F(PreparedTest, ReadsAFileAgainOnlyIfItHasChanged) {
  Change('1', {1000, 5});
  ExpectOpens(1, 1, "first");
  Change('2', {1000, 5});
  ExpectOpens(1, 1, "not a byte of the file is read");
  ExpectOpens(2, 2, "other options", "others");
  ExpectOpens(1, 2, "both copies stay");
  EXPECT_EQ(Copies().size(), 2u);
  Change('3', {1000, 6});
  ExpectOpens(3, 3, "a nanosecond later");
  fs::resize_file(source_, kLeastPrepared + 1);
  Change('4', {1000, 6});
  ExpectOpens(4, 4, "another size");
  fs::copy_file(source_, folder_ / "other");
  fs::rename(folder_ / "other", source_);
  Change('5', {1000, 6});
  ExpectOpens(5, 5, "another file of this name");
  EXPECT_EQ(Copies().size(), 2u) << "the copy of a changed file replaces the old one";
}

TEST_F(PreparedTest, SmallFilesHaveNoCopy) {
  fs::resize_file(source_, kLeastPrepared - 1);
  ExpectOpens(1, 1, "first");
  ExpectOpens(1, 2, "again");
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
}

TEST_F(PreparedTest, BrokenCopiesAreMadeAnew) {
  ExpectOpens(1, 1, "first");
  const fs::path path = Copies().at(0);
  const auto size = static_cast<int64_t>(fs::file_size(path));
  int builds = 1;
  for (const int64_t left : {int64_t{0}, int64_t{10}, size / 2, size - 1, size + 1}) {
    fs::resize_file(path, static_cast<uintmax_t>(left));
    ExpectOpens(1, ++builds, Str("cut to ", left, " of ", size));
  }
  const int64_t data = kNumbers * 4;
  for (int64_t at = data; at < size; ++at) {
    std::fstream file(path, std::ios::in | std::ios::out);
    file.seekg(at);
    const char was = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(was ^ 1));
    file.close();
    if (at % 7 == 0) ExpectOpens(1, ++builds, Str("byte ", at, " of ", size));
    if (at % 7 != 0) {
      std::fstream again(path, std::ios::in | std::ios::out);
      again.seekp(at);
      again.put(was);
    }
  }
}

TEST_F(PreparedTest, ManyProcessesPrepareOnce) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Prepared prepared = Open();
      int32_t last = 0;
      std::memcpy(&last, prepared.bytes.data() + prepared.bytes.size() - sizeof(last),
                  sizeof(last));
      ::_exit(last == kNumbers ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(fs::file_size(folder_ / "builds"), 1u);
  EXPECT_EQ(Copies().size(), 1u) << "neither locks nor temporary files stay";
}

TEST_F(PreparedTest, WithoutACacheTheFileIsReadDirectly) {
  Write("cache", "a file where the folder should be");
  std::string said;
  SetProgressOutput({.say = [&](const std::string& line) { said = line; }});
  ExpectOpens(1, 1, "no folder");
  EXPECT_THAT(said,
              HasSubstr("note: reading source into the memory of each process, since the cache "
                        "cannot keep a copy: cannot make the folder"));
  fs::remove(folder_ / "cache");
  // A file that may not grow further imitates a disk that is full.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old;
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit least = {size_t{2} << 20, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &least);
  ExpectOpens(1, 3, "a full disk: read once in vain");
  EXPECT_THAT(said, HasSubstr("cannot write"));
  SetProgressOutput({});
  ::setrlimit(RLIMIT_FSIZE, &old);
  for (const fs::path& path : Copies()) EXPECT_EQ(path.extension(), ".lock") << path;
}

TEST_F(PreparedTest, AnErrorOfTheFileIsNoErrorOfTheCache) {
  const PreparedKey key = {"numbers", {source_}};
  EXPECT_EQ(strata::ErrorOf([&] {
              Prepare(key, [](PreparedWriter&) -> Value { throw WorldError("source:3: a word"); });
            }),
            "source:3: a word");
  ExpectOpens(1, 1, "the next one is not kept from preparing");
}

TEST_F(PreparedTest, UnusedCopiesGo) {
  ExpectOpens(1, 1, "first");
  const fs::path copy = Copies().at(0);
  const auto set_age = [&](int days) {
    fs::last_write_time(copy, fs::file_time_type::clock::now() - std::chrono::hours(24 * days));
  };
  set_age(31);
  ExpectOpens(1, 1, "used again");
  ExpectOpens(1, 2, "others", "others");
  EXPECT_TRUE(fs::exists(copy)) << "it was used today";
  set_age(31);
  ExpectOpens(1, 3, "third", "third");
  EXPECT_FALSE(fs::exists(copy));
  EXPECT_EQ(Copies().size(), 2u);
}

}  // namespace
}  // namespace strata::data
