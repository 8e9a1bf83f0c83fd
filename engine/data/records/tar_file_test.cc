#include "engine/data/records/tar_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"
#include "engine/job/data_source.h"

namespace strata {
namespace {

using testing::HasSubstr;

std::string Octal(int64_t number, int width) {
  char text[32];
  std::snprintf(text, sizeof(text), "%0*llo", width - 1, static_cast<long long>(number));
  return text;
}

/// Sets the checksum of a header.
std::string Sealed(std::string header) {
  header.replace(148, 8, 8, ' ');
  int64_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  return header.replace(148, 8, Octal(sum, 7) + std::string("\0 ", 2));
}

std::string Header(const std::string& name, int64_t size, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 11, Octal(size, 12));
  header[156] = type;
  header.replace(257, 8, std::string("ustar\00000", 8));
  return Sealed(header);
}

std::string Member(const std::string& name, const std::string& content, char type = '0') {
  const size_t blocks = (content.size() + 511) / 512;
  return Header(name, std::ssize(content), type) + content +
         std::string(512 * blocks - content.size(), '\0');
}

std::string End() { return std::string(1024, '\0'); }

/// "name=content" of each member, or the error.
std::string Read(const std::string& tar) {
  std::vector<std::string> members;
  const std::string error = ErrorOf([&] {
    data::ForEachTarMember(tar, "a.tar", [&](const data::TarMember& member) {
      members.push_back(
          member.name + "=" +
          tar.substr(static_cast<size_t>(member.offset), static_cast<size_t>(member.size)));
    });
  });
  return error == "no error" ? Join(members, " ") : error;
}

TEST(TarFile, ReadsUstarPaxAndGnu) {
  std::string in_folder = Header("f", 1);
  in_folder.replace(345, 3, "a/b");
  in_folder = Sealed(in_folder);
  std::string binary = Header("big", 0);
  binary.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\2", 12));
  const std::string block(511, '\0');
  const std::string tar =
      Member("x", "hey") + Member("d/", "", '5') + in_folder + "F" + block + Sealed(binary) + "hi" +
      std::string(510, '\0') + Member("@Long", "gnu/name.txt", 'L') + Member("short", "1") +
      Member("pax", "16 path=pax/nam\n10 size=2\n", 'x') + Header("p", 0) + "ab" +
      std::string(510, '\0') + Member("g", "12 comment=a\n", 'g') + Member("link", "long", 'K') +
      Member("old", "o", '\0') + Member("near", "n", '7') + Member("last", "");
  EXPECT_EQ(Read(tar + End()), "x=hey a/b/f=F big=hi gnu/name.txt=1 pax/nam=ab old=o near=n last=");
}

TEST(TarFile, ChecksumsMayAddSignedBytes) {
  std::string header = Header("\xff", 0);
  int64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<signed char>(header[i]);
  }
  header.replace(148, 6, Octal(sum, 7));
  EXPECT_EQ(Read(header + End()), "\xff=");
}

TEST(TarFile, BrokenTarsAreRefusedWithTheOffset) {
  const std::string one = Member("a.txt", "hey");
  std::string wrong_sum = one;
  wrong_sum[3] = 'X';
  std::string not_octal = Header("a", 1);
  not_octal.replace(124, 3, "9xy");
  std::string huge = Header("a", 1);
  huge.replace(124, 12, "\x80" + std::string(11, '\xff'));
  const struct {
    std::string tar;
    const char* says;
  } cases[] = {
      {"", "a.tar: byte 0: the tar is cut off: expected a header or the two blocks of zeros"},
      {one, "a.tar: byte 1024: the tar is cut off"},
      {one.substr(0, 700) + End().substr(0, 3), "a.tar: byte 703: the tar is cut off"},
      {one + wrong_sum + End(), "a.tar: byte 1024: the header's checksum is wrong: expected "},
      {wrong_sum, "a.tar: byte 0: expected a tar, got another file"},
      {Header("a", 5000) + End(),
       "byte 0: the member \"a\" has 5000 bytes, which run past the end of the file, 1536 bytes"},
      {Sealed(not_octal) + End(), "byte 0: the member \"a\" has a size that is no number"},
      {Sealed(huge) + End(), "byte 0: the member \"a\" has a size that is no number"},
      {one + End() + one + End(), "byte 1024: expected nothing behind the end of the tar"},
      {Member("l", "", '2') + End(), "byte 0: the member \"l\" of type \"2\" is no regular file"},
      {Member("p", "99 path=x\n", 'x') + End(), "byte 0: a pax header that is not made of records"},
      {Member("p", "12 path=xxx", 'x') + End(), "byte 0: a pax header that is not made of records"},
      {Member("p", "11 size=-2\n", 'x') + End(), "byte 0: a pax header whose size is no number"},
      {Member("p", "22 GNU.sparse.major=1\n", 'x') + End(), "byte 0: a file with holes"},
      {Header("p", 1 << 21, 'L') + std::string(1 << 21, 'a') + End(), "byte 0: a name of 2097152"},
  };
  for (const auto& [tar, says] : cases) EXPECT_THAT(Read(tar), HasSubstr(says));
}

class TarRecordsTest : public DatasetTest {
 protected:
  std::string Error(const std::string& tar, const Value::Map& more) {
    Value::Map all = {{"path", Write("a.tar", tar + End())}};
    all.insert(all.end(), more.begin(), more.end());
    return ErrorOf("webdataset", MakeDataSource("webdataset", {}, all, "net.lua:9"));
  }
};

TEST_F(TarRecordsTest, FieldsThatCannotBeReadAreRefused) {
  const Value::Map number = {{"columns", Value::List{"cls"}}},
                   array = {{"columns", Value::List{"npy"}}};
  const struct {
    std::string tar;
    Value::Map options;
    const char* says;
  } cases[] = {
      {Member("README", "") + Member(".hidden.cls", "x") + Member("1.cls", "7 "), number,
       "no error"},
      {Member("1.cls", "seven"), number,
       "\"1.cls\": expected a whole number from 0 on, got \"seven\""},
      {Member("1.cls", "7") + Member("1.CLS", "7"), number, "sample \"1\" has \"cls\" twice"},
      {Member("1.cls", "7") + Member("2.txt", "7"), number, "sample \"2\": there is no \"cls\""},
      {Member("1.txt", "a") + Member("2.txt", "b") + Member("1.cls", "7") + Member("2.cls", "7"),
       number,
       "sample \"1\": there is no \"cls\"; it is one of txt; its other files lie elsewhere in the "
       "tar, but the files of a sample must follow each other (tar --sort=name)"},
      {Member("1.npy", "7"), array, "\"1.npy\": expected the array of a .npy file"},
      {Member("1.mp4", "7"),
       {{"columns", Value::List{"mp4"}}},
       "\"1.mp4\": files of this kind are not read; "
       "fields are cls, cls2"},
      {Member("1.txt", "\xff"), {{"length", 4}, {"text", "txt"}}, "\"1.txt\": "},
      {Member("1.json", "{"), {{"length", 4}}, "\"1.json\": "},
      {Member("README", ""), number, "a.tar: expected records, got none"},
  };
  for (const auto& [tar, options, says] : cases) {
    EXPECT_THAT(Error(tar, options), HasSubstr(says));
  }
}

TEST_F(TarRecordsTest, ImagesThatCannotBeReadLaterAreRefusedWithTheirPlace) {
  const std::string picture = Content("engine/data/testdata/picture.png");
  const std::string tar = Member("1.png", picture) + Member("2.png", "");
  const std::string path = Write("a.tar", tar + End());
  const Value source =
      MakeDataSource("webdataset", {}, {{"path", path}, {"image", "png"}, {"size", 2}}, "");
  const auto data = OpenDataset({"webdataset", source, {}, ""}, context_);
  EXPECT_EQ(Floats(*data, 0).size(), 12);
  EXPECT_THAT(strata::ErrorOf([&] { Floats(*data, 1); }),
              HasSubstr(Str(path, ": byte ", tar.size(), ": ")));
  Write("a.tar", tar + Member("3.png", picture) + End());
  EXPECT_THAT(strata::ErrorOf([&] { Floats(*data, 0); }),
              HasSubstr(path + ": the file has changed since it was opened: expected "));
}

TEST_F(TarRecordsTest, ArraysAreInputs) {
  const std::string npy = Content("engine/data/testdata/floats.npy");
  const Value source =
      MakeDataSource("webdataset", {},
                     {{"path", Write("a.tar", Member("1.npy", npy) + Member("2.npy", npy) + End())},
                      {"columns", Value::List{"npy"}}},
                     "net.lua:9");
  const auto data = OpenDataset({"webdataset", source, {}, ""}, context_);
  EXPECT_EQ(data->input().shape, (std::vector<int64_t>{3, 2, 2}));
  EXPECT_EQ(Floats(*data, 1)[11],
            Floats(*Open("npy", Options({{"input", "engine/data/testdata/floats.npy"}})), 2)[3]);
}

}  // namespace
}  // namespace strata
