// Bounds on the memory and the bytes that large files take; tests/data_at_size.py has files of
// users' sizes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "engine/data/files/array_file.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"

namespace strata {
namespace {

class LargeFiles : public DatasetTest {
 protected:
  void SetUp() override {
    DatasetTest::SetUp();
    ::setenv("STRATA_CACHE", (folder_ / "cache").c_str(), 1);
  }
  std::unique_ptr<Dataset> OpenSource(const std::string& kind, const Value::Map& options) {
    return Open(kind, MakeDataSource(kind, {}, options, ""));
  }
};

/// The bytes of this process's memory that are in no file.
int64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kibibytes = 0;
    if (word == "RssAnon:" && status >> kibibytes) return kibibytes * 1024;
  }
  ADD_FAILURE() << "/proc/self/status has no RssAnon";
  return 0;
}

std::string Repeated(const std::string& line, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += line;
  return text;
}

TEST_F(LargeFiles, AFileMayBeLargerThanTheMemory) {
  struct sysinfo machine = {};
  ASSERT_EQ(::sysinfo(&machine), 0);
  const auto bytes = 2 * (machine.totalram + machine.totalswap) * machine.mem_unit;
  const std::string path = Write("sparse", "");
  std::filesystem::resize_file(path, bytes);  // has no blocks on the disk
  const data::MappedFile file(path, "a file");
  EXPECT_EQ(file.text().size(), bytes);
  EXPECT_EQ(file.text().back(), '\0');
}

TEST_F(LargeFiles, BytesStayInFiles) {
  constexpr size_t kBytes = size_t{12} << 20;
  const std::string lines =
      Repeated("{\"text\": \"" + Repeated("word ", 400) + "\", \"label\": \"b\"}\n", kBytes);
  const Value csv = Write("rows.csv", "x,y,z\n" + Repeated("1.25,blue,yes\n-3,red,no\n", kBytes));
  const Value jsonl = Write("texts.jsonl", lines), text = Write("one.txt", lines);
  const Value tokenizer = Write("tokenizer.json", ChatTokenizer());
  const Value chat =
      Write("chat.jsonl", Repeated(R"({"messages": [{"role": "assistant", "content": ")" +
                                       Repeated("word ", 400) + "\"}]}\n",
                                   kBytes));
  Write("several/one.txt", lines.substr(0, kBytes / 2));
  Write("several/two.txt", lines.substr(kBytes / 2));
  const Value several = (folder_ / "several").string();
  const struct {
    const char* kind;
    Value::Map options;
  } sources[] = {
      {"csv", {{"path", csv}, {"normalise", true}}},
      {"jsonl", {{"path", jsonl}, {"length", 16}}},
      {"jsonl", {{"path", jsonl}, {"length", 16}, {"target", "label"}}},
      {"chat", {{"path", chat}, {"template", "chatml"}, {"tokenizer", tokenizer}, {"length", 16}}},
      {"text", {{"path", text}, {"length", 16}}},
      {"text", {{"path", several}, {"length", 16}}},
  };
  for (const auto& source : sources) {
    for (const char* when : {"first", "again"}) {
      const int64_t before = AnonymousBytes();
      const std::unique_ptr<Dataset> data = OpenSource(source.kind, source.options);
      std::vector<std::byte> bytes(static_cast<size_t>(data->input_bytes() + data->target_bytes()));
      for (int64_t i = 0; i < data->size(); i += 100) {
        data->Read(i, bytes.data(), bytes.data() + data->input_bytes());
      }
      EXPECT_LT(AnonymousBytes() - before, int64_t{4} << 20) << data->description() << ", " << when;
    }
  }
}

/// The pages of a file that the system has in memory.
int64_t ResidentPages(const std::string& path) {
  const data::MappedFile file(path, "");
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(file.bytes().size() / page + 1);
  void* begin = const_cast<std::byte*>(file.bytes().data());
  EXPECT_EQ(::mincore(begin, file.bytes().size(), pages.data()), 0);
  return std::count_if(pages.begin(), pages.end(), [](unsigned char in) { return in & 1; });
}

TEST_F(LargeFiles, RandomRowsReadOnlyTheirPages) {
  // 64 MiB of zeros that were never written, so none of their pages is in memory.
  constexpr int64_t kRows = 1 << 16, kRowBytes = 1024, kRead = 32;
  const TensorSpec spec = {{kRows, kRowBytes / 4}, DType::kFloat32};
  const std::string safe = Str(R"({"x":{"dtype":"F32","shape":[)", kRows, ",", kRowBytes / 4,
                               R"(],"data_offsets":[0,)", kRows * kRowBytes, "]}}");
  const std::string length = {static_cast<char>(safe.size()), 0, 0, 0, 0, 0, 0, 0};
  const struct {
    const char* kind;
    const char* option;
    std::string begin;
  } sources[] = {{"npy", "input", data::NpyHeader(spec)}, {"safetensors", "path", length + safe}};
  for (const auto& source : sources) {
    const std::string path = Write(source.kind, source.begin);
    std::filesystem::resize_file(path, source.begin.size() + kRows * kRowBytes);
    const auto data = OpenSource(source.kind, {{source.option, path}});
    ASSERT_EQ(data->size(), kRows);
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < kRead; ++i) indices.push_back(i * 104729 % kRows);
    std::vector<std::byte> batch(kRead * kRowBytes);
    data->ReadBatch(indices, 0, batch.data(), nullptr);
    EXPECT_LE(ResidentPages(path), 2 * kRead + 16) << source.kind << ": 2 pages a row, the header";
  }
}

}  // namespace
}  // namespace strata
