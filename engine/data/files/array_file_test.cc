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
