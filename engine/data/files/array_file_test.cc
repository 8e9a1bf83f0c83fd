// Tests arrays that NumPy wrote (testdata/make_data.py), and damaged files.
#include "engine/data/files/array_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "engine/base/testing.h"
#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"

namespace strata::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::vector<T> Values(const Array& array) {
  std::vector<T> values(static_cast<size_t>(array.spec.elements()));
  if (!values.empty()) std::memcpy(values.data(), array.bytes, values.size() * sizeof(T));
  return values;
}

class ArrayFileTest : public DatasetTest {
 protected:
  std::string ErrorOfContent(const std::string& content) {
    return strata::ErrorOf([&] { ReadArrays(Write("file", content)); });
  }
};

TEST_F(ArrayFileTest, ReadsWhatNumpyWrote) {
  const Array floats = ReadArray(TestData("floats.npy"));
  EXPECT_EQ(floats.spec.ToString(), "float32 (3, 2, 2)");
  EXPECT_NEAR(Values<float>(floats)[0], 0.07630829, 1e-7);
  const Array scalar = ReadArray(TestData("scalar.npy"));
  EXPECT_EQ(scalar.spec.ToString(), "int64 ()");
  EXPECT_THAT(Values<int64_t>(scalar), ElementsAre(7));
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const Array x = ReadArray(TestData(name), "x"), y = ReadArray(TestData(name), "y");
    EXPECT_EQ(x.spec.ToString(), "float64 (4, 3)");
    EXPECT_EQ(Values<double>(x)[7], 7) << name;
    EXPECT_THAT(Values<uint8_t>(y), ElementsAre(2, 0, 1, 1)) << name;
  }
  EXPECT_THAT(Values<uint8_t>(ReadArray(TestData("labels.idx.gz"))), ElementsAre(5, 0, 9));
}

TEST_F(ArrayFileTest, RefusesWhatItWouldReadWrongly) {
  const auto error_of = [](const char* name) {
    return strata::ErrorOf([&] { ReadArrays(TestData(name)); });
  };
  EXPECT_THAT(error_of("fortran.npy"), AllOf(HasSubstr("fortran.npy: "), HasSubstr("Fortran")));
  EXPECT_THAT(error_of("complex.npy"), AllOf(HasSubstr("complex.npy: "), HasSubstr("<c8")));
  EXPECT_THAT(error_of("big.npy"), AllOf(HasSubstr("big.npy: "), HasSubstr(">i4")));
  EXPECT_THAT(strata::ErrorOf([] { ReadArray(TestData("stored.npz"), "z"); }),
              AllOf(HasSubstr("no array \"z\""), HasSubstr("x, y")));
}

std::string Little(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

/// A .npz of `count` times the member, "0.npy", "1.npy", ... The number of members stands in the
/// end record of 64 bits, as zipfile of Python writes it where 16 bits do not suffice.
std::string Npz(uint64_t count, const std::string& member) {
  std::string files, directory;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = Str(i, ".npy"), size = Little(member.size(), 4);
    const std::string head = Little(0, 14) + size + size + Little(name.size(), 2);
    directory +=
        "PK\x01\x02" + Little(0, 2) + head + Little(0, 12) + Little(files.size(), 4) + name;
    files += "PK\x03\x04" + head + Little(0, 2) + name + member;
  }
  const std::string end64 = "PK\x06\x06" + Little(44, 8) + Little(0, 12) + Little(count, 8) +
                            Little(count, 8) + Little(directory.size(), 8) +
                            Little(files.size(), 8);
  const std::string locator =
      "PK\x06\x07" + Little(0, 4) + Little(files.size() + directory.size(), 8) + Little(1, 4);
  return files + directory + end64 + locator + "PK\x05\x06" + Little(0, 4) + Little(0xffffffff, 4) +
         Little(directory.size(), 4) + Little(files.size(), 4) + Little(0, 2);
}

TEST_F(ArrayFileTest, AnArchiveMayHaveMoreMembersThan16BitsCount) {
  const std::string path = Write("many.npz", Npz(70'000, Content(TestData("scalar.npy"))));
  EXPECT_EQ(ReadArrays(path).size(), 70'000u);
  EXPECT_THAT(Values<int64_t>(ReadArray(path, "69999")), ElementsAre(7));
}

/// The length of the header begins with the bytes of IDX, two zeros.
TEST_F(ArrayFileTest, SafetensorsMayHaveAHeaderOf64KiB) {
  std::string header = R"({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})";
  header.resize(1 << 16, ' ');
  const std::string path = Write("a.safetensors", Little(header.size(), 8) + header + "\x09");
  EXPECT_THAT(Values<uint8_t>(ReadArray(path, "x")), ElementsAre(9));
}

/// A file that is cut off anywhere must give an error that names it; nothing may be read beyond its
/// end.
TEST_F(ArrayFileTest, FilesThatAreCutOffAreNamed) {
  for (const char* name : {"floats.npy", "stored.npz", "deflated.npz", "labels.idx.gz"}) {
    const std::string whole = Content(TestData(name));
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THAT(ErrorOfContent(whole.substr(0, size)), HasSubstr("file: ")) << name << size;
    }
  }
}

/// A flipped bit in a header must give an error, or an array that lies within the file.
TEST_F(ArrayFileTest, FlippedBytesHarmNothing) {
  for (const char* name : {"floats.npy", "stored.npz", "deflated.npz"}) {
    const std::string whole = Content(TestData(name));
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ 0x15);
      try {
        int64_t sum = 0;
        for (const Array& array : ReadArrays(Write("file", flipped))) {
          sum = std::accumulate(array.bytes, array.bytes + array.spec.bytes(), sum,
                                [](int64_t s, std::byte b) { return s + static_cast<int>(b); });
        }
        EXPECT_GE(sum, 0);
      } catch (const WorldError& error) {
        EXPECT_THAT(error.what(), HasSubstr("file: "));
      }
    }
  }
}

TEST_F(ArrayFileTest, WritesWhatItReads) {
  const Array floats = ReadArray(TestData("floats.npy"));
  const std::string path = (folder_ / "again.npy").string();
  WriteArrays(path, {floats});
  EXPECT_EQ(Content(path), Content(TestData("floats.npy")));  // the same bytes as NumPy's
  Array named = floats;
  named.name = "weights";
  const std::string tensors = (folder_ / "again.safetensors").string();
  WriteArrays(tensors, {named});
  EXPECT_EQ(Values<float>(ReadArray(tensors, "weights")), Values<float>(floats));
}

}  // namespace
}  // namespace strata::data
