// Compares tokens with those of Hugging Face's and SentencePiece's libraries
// (testdata/make_tokens.py, make_sentencepieces.py).
#include "engine/data/tokens/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <random>
#include <thread>

#include "engine/base/split_mix.h"
#include "engine/base/testing.h"
#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"
#include "engine/data/tokens/nfc.h"
#include "engine/data/tokens/word_splitter.h"

namespace strata::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Value& Golden() {
  static const Value golden = Value::FromJson(Content(TestData("tokens.json")));
  return golden;
}

/// The text generator of make_tokens.py.
class Lines {
 public:
  explicit Lines(uint64_t seed, const Value::List& more = {})
      : random_(seed), fragments_(Golden()["fragments"].as_list()) {
    fragments_.insert(fragments_.end(), more.begin(), more.end());
  }
  std::string Next() {
    const uint64_t count = 1 + random_.Next() % 12;
    std::string line;
    for (uint64_t i = 0; i < count; ++i) {
      line += fragments_[random_.Next() % fragments_.size()].as_string();
    }
    return line;
  }

 private:
  SplitMixRandom random_;
  Value::List fragments_;
};

TokenList Encoded(const Tokenizer& tokenizer, std::string_view text) {
  TokenList tokens;
  tokenizer.Encode(text, tokens);
  return tokens;
}

class TokenizerTest : public DatasetTest, public testing::WithParamInterface<size_t> {
 protected:
  const Value& golden() const { return Golden()["tokenizers"].as_list()[GetParam()]; }
  std::unique_ptr<Tokenizer> Open() const {
    return ReadTokenizer(TestData(golden()["file"].as_string()));
  }
};

/// Without NFC, which composes characters across what would be a special token.
TEST_P(TokenizerTest, FindsNoSpecialTokensInContents) {
  const auto tokenizer = Open();
  EXPECT_EQ(tokenizer->SpecialToken("<pad>"), 1);
  EXPECT_EQ(tokenizer->SpecialToken("<pad"), -1);
  if (!golden()["more"].as_list().empty()) return;
  Lines lines(3);
  for (int i = 0; i < 1000; ++i) {
    const std::string line = lines.Next();
    TokenList tokens;
    tokenizer->EncodeContent(line, tokens);
    std::string text;
    for (const int32_t token : tokens) {
      EXPECT_GT(token, 1) << line;
      text += tokenizer->Decode(token);
    }
    EXPECT_TRUE(text == line || text == " " + line) << line;
    if (line.find("<pad>") == line.npos && line.find("<|endoftext|>") == line.npos) {
      EXPECT_EQ(tokens, Encoded(*tokenizer, line)) << line;
    }
  }
}

TEST_P(TokenizerTest, GivesTheTokensOfTheOriginal) {
  const auto tokenizer = Open();
  EXPECT_EQ(tokenizer->vocabulary(), golden()["vocabulary"].as_int());
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  constexpr int kLines = 10000;
  Lines lines(2, golden()["more"].as_list());
  std::string all;
  for (int i = 0; i < kLines; ++i) {
    const std::string line = lines.Next();
    const TokenList tokens = Encoded(*tokenizer, line);
    all += Join(tokens, " ") + "\n";
    const Value::List& first = golden()["first"].as_list();
    if (static_cast<size_t>(i) >= first.size()) continue;
    const std::vector<int64_t> expected = first[static_cast<size_t>(i)].as_ints();
    EXPECT_EQ(std::vector<int64_t>(tokens.begin(), tokens.end()), expected) << line;
  }
  EXPECT_EQ(Digest(all), golden()["digest"].as_string());
}

std::string Decoded(const Tokenizer& tokenizer, const TokenList& tokens) {
  std::string text;
  for (const int32_t token : tokens) text += tokenizer.Decode(token);
  return text;
}

TEST_P(TokenizerTest, GivesTheTextBack) {
  const auto tokenizer = Open();
  const bool adds_space = Decoded(*tokenizer, Encoded(*tokenizer, "a")) == " a";
  const bool composes = golden()["file"] == Value("qwen2.tokenizer.json");
  Lines lines(5);
  for (int i = 0; i < 1000; ++i) {
    std::string line = lines.Next();
    if (composes) line = ToNfc(line);
    std::string decoded = Decoded(*tokenizer, Encoded(*tokenizer, line));
    for (std::string* text : {&line, &decoded}) {
      if (adds_space) std::erase(*text, ' ');
    }
    EXPECT_EQ(decoded, line);
  }
  EXPECT_EQ(tokenizer->Decode(static_cast<int32_t>(tokenizer->vocabulary())), "");
}

TEST_P(TokenizerTest, IsUsedByTexts) {
  std::string text;
  for (Lines lines(3); text.size() < 3000;) text += lines.Next();
  const std::string path = Write("text", text);
  const std::string file = TestData(golden()["file"].as_string());
  const auto dataset = OpenDataset(
      SpecOf(MakeDataSource("text", {path}, {{"length", 8}, {"tokenizer", file}}, ""), context_),
      context_);
  const TokenList tokens = Encoded(*Open(), text);
  const std::vector<int64_t> first = Ints(*dataset, 0, true);
  EXPECT_EQ(first, std::vector<int64_t>(tokens.begin() + 1, tokens.begin() + 9));
  EXPECT_THAT(dataset->description(), HasSubstr("pieces of 8 tokens (train)"));
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerTest, testing::Range(size_t{0}, size_t{4}));

// SentencePiece

const Value& SentencePieceGoldens() {
  static const Value golden = Value::FromJson(Content(TestData("sentencepieces.json")));
  return golden;
}

class SentencePieceTest : public DatasetTest, public testing::WithParamInterface<size_t> {
 protected:
  const Value& golden() const { return SentencePieceGoldens().as_list()[GetParam()]; }
  std::string path() const { return TestData(golden()["file"].as_string()); }
};

TEST_P(SentencePieceTest, GivesTheTokensAndTextsOfTheOriginal) {
  const auto tokenizer = ReadTokenizer(path());
  EXPECT_EQ(tokenizer->vocabulary(), golden()["vocabulary"].as_int());
  EXPECT_EQ(tokenizer->end_of_text(), golden()["end"].as_int());
  constexpr int kLines = 10000;
  Lines lines(2);
  std::string all, texts;
  for (int i = 0; i < kLines; ++i) {
    const std::string line = lines.Next();
    const TokenList tokens = Encoded(*tokenizer, line);
    all += Join(tokens, " ") + "\n";
    const std::string text = Decoded(*tokenizer, tokens);
    texts += text.substr(std::min(text.find_first_not_of(' '), text.size())) + "\n";
    const Value::List& first = golden()["first"].as_list();
    if (static_cast<size_t>(i) >= first.size()) continue;
    const std::vector<int64_t> expected = first[static_cast<size_t>(i)].as_ints();
    EXPECT_EQ(std::vector<int64_t>(tokens.begin(), tokens.end()), expected) << line;
  }
  EXPECT_EQ(Digest(all), golden()["digest"].as_string());
  EXPECT_EQ(Digest(texts), golden()["decoded"].as_string());
  EXPECT_EQ(tokenizer->Decode(static_cast<int32_t>(tokenizer->vocabulary())), "");
}

/// A file with any byte changed, or cut anywhere, must be read, or refused with its name.
TEST_P(SentencePieceTest, BrokenFilesAreNamed) {
  const std::string whole = Content(TestData(golden()["file"].as_string()));
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string broken = whole;
    if (i % 2 == 0) broken.resize(random() % broken.size());
    // Most of a long file is the normaliser's map at its end, so a changed byte is among the first
    // or the last 300.
    if (i % 2 == 1) broken[(i % 4 == 1 ? 0 : broken.size() - 300) + random() % 300] ^= 1 << i % 8;
    const std::string file = Write("t.model", broken);
    const std::string error = strata::ErrorOf([&] {
      TokenList tokens = Encoded(*ReadTokenizer(file), "a quick\u00a0brown \uff46ox\u2026");
    });
    if (error == "no error") continue;
    ++refused;
    EXPECT_THAT(error, testing::StartsWith(file + ": "));
  }
  EXPECT_GT(refused, 50);
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceTest, testing::Range(size_t{0}, size_t{8}));

TEST(SentencePieces, AreNamedWhereTheyAreNoPieces) {
  class Files : public DatasetTest {
   public:
    void TestBody() override {}
    using DatasetTest::SetUp;
    using DatasetTest::Write;
  } files;
  files.SetUp();
  const auto error_of = [&](const std::string& content) {
    return strata::ErrorOf([&] { ReadTokenizer(files.Write("t.model", content)); });
  };
  const std::string unknown = {0x0a, 0x05, 0x0a, 0x01, 'u', 0x18, 0x02};
  const std::string a = {0x0a, 0x03, 0x0a, 0x01, 'a'};
  EXPECT_EQ(error_of(unknown + a), "no error");
  EXPECT_THAT(error_of(a), HasSubstr("a piece for what is unknown"));
  EXPECT_THAT(error_of(unknown + a + a), HasSubstr("the piece 2, \"a\", is there twice"));
  EXPECT_THAT(error_of(unknown + std::string({0x0a, 0x00})), HasSubstr("the piece 1 is empty"));
  EXPECT_THAT(error_of(unknown + std::string("\x0a\x08\x0a\x01"
                                             "b\x15\x00\x00\xc0\x7f",
                                             10)),
              HasSubstr("the piece \"b\" has the score nan"));
  EXPECT_THAT(error_of(unknown + std::string("\x0a\x0a\x0a\x06"
                                             "[0x0A]\x18\x06",
                                             12)),
              HasSubstr("the piece \"[0x0A]\" is no byte"));
  EXPECT_THAT(error_of(unknown + std::string({0x12, 0x02, 0x18, 0x05})),
              HasSubstr("the model has the type 5"));
  EXPECT_THAT(error_of(unknown + std::string({0x12, 0x03, '\x98', 0x02, 0x01})),
              HasSubstr("wants pieces for all 256 bytes"));
  EXPECT_THAT(error_of(unknown + std::string({0x1a, 0x03, 0x12, 0x01, 'x'})),
              HasSubstr("the normaliser's map is broken"));
  EXPECT_THAT(error_of(unknown + std::string({0x2a, 0x03, 0x12, 0x01, 'x'})),
              HasSubstr("denormalizer_spec is not done"));
}

using SentencePieceTexts = DatasetTest;

/// "ab" beats "a" and "b" by only 0.1, which would be lost to rounding in the sum over a whole
/// file.
TEST_F(SentencePieceTexts, OfAnyLengthHaveTheTokensOfTheirWords) {
  const auto message = [](const std::string& content) {
    return Str('\n', static_cast<char>(content.size()), content);
  };
  const auto piece = [&](const char* text, float score) {
    const auto bytes = std::bit_cast<std::array<char, 4>>(score);
    return message(message(text) + "\x15" + std::string(bytes.begin(), bytes.end()));
  };
  const std::string unknown = message(message("u") + "\x18\x02");
  const std::string model = unknown + piece("\u2581", -1) + piece("a", -0.9F) + piece("b", -0.9F) +
                            piece("ab", -1.7F) + piece("x", -15);
  const auto tokenizer = ReadTokenizer(Write("t.model", model));
  std::string text = "abxxxxxxxx";
  const TokenList once = Encoded(*tokenizer, text);
  EXPECT_THAT(once, ElementsAre(1, 4, 5, 5, 5, 5, 5, 5, 5, 5));
  TokenList expected = once;
  while (text.size() < 3'000'000) {
    text += " abxxxxxxxx";
    expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_TRUE(Encoded(*tokenizer, text) == expected);
}

/// Llama 3's template is inside a Sequence.
TEST_F(DatasetTest, ATemplateTellsWhatIsBeforeATextAndEncodeLeavesItOut) {
  const std::string file = Content(TestData("llama3.tokenizer.json"));
  const auto with = [&](const std::string& processor) {
    std::string text = file;
    const std::string none = "\"post_processor\":null";
    EXPECT_NE(text.find(none), text.npos);
    return ReadTokenizer(Write(
        "t.json", text.replace(text.find(none), none.size(), "\"post_processor\":" + processor)));
  };
  const std::string roberta = R"({"type":"RobertaProcessing","sep":["<pad>",1],"cls":["<pad>",1]})";
  const std::string whole = R"({"type":"TemplateProcessing",
    "single":[{"SpecialToken":{"id":"<pad>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
              {"SpecialToken":{"id":"<|endoftext|>","type_id":0}}],"pair":[],
    "special_tokens":{"<pad>":{"id":"<pad>","ids":[1],"tokens":["<pad>"]},
      "<|endoftext|>":{"id":"<|endoftext|>","ids":[0],"tokens":["<|endoftext|>"]}}})";
  const std::string list =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + whole + "]}";
  for (const std::string& processor : {whole, list}) {
    const auto tokenizer = with(processor);
    EXPECT_THAT(tokenizer->before_text(), ElementsAre(1)) << processor;
    EXPECT_EQ(Encoded(*tokenizer, "the fox"), Encoded(*with("null"), "the fox"));
  }
  for (const std::string& processor : {std::string("null"), roberta}) {
    EXPECT_THAT(with(processor)->before_text(), ElementsAre()) << processor;
  }
  EXPECT_THAT(strata::ErrorOf([&] { with(R"({"type":"TemplateProcessing"})"); }),
              HasSubstr("t.json: "));
}

TEST(Tokenizers, SeveralThreadsMayEncode) {
  const auto tokenizer = ReadTokenizer(TestData("gpt2.tokenizer.json"));
  std::vector<TokenList> got(3);
  std::vector<std::thread> threads;
  for (TokenList& tokens : got) {
    threads.emplace_back([&] {
      for (Lines lines(4); tokens.size() < 5000;) tokenizer->Encode(lines.Next(), tokens);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[0], got[2]);
}

/// A list to which a file's lines are added one by one must be reallocated only when it doubles.
TEST(Tokenizers, AddTokensWithoutCopyingThoseBefore) {
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(MakeByteTokenizer());
  for (const Value& entry : Golden()["tokenizers"].as_list()) {
    all.push_back(ReadTokenizer(TestData(entry["file"].as_string())));
  }
  for (const auto& tokenizer : all) {
    TokenList tokens;
    int moves = 0;
    for (int line = 0; line < 10000; ++line) {
      const int32_t* const before = tokens.data();
      tokenizer->Encode("a line", tokens);
      if (tokens.data() != before) ++moves;
    }
    EXPECT_GE(tokens.size(), 10000u);
    EXPECT_LT(moves, 30);
  }
}

TEST(Tokenizers, BytesAreTokens) {
  const auto bytes = MakeByteTokenizer();
  EXPECT_THAT(Encoded(*bytes, "a\xff"), ElementsAre('a', 255));
  EXPECT_EQ(bytes->vocabulary(), 256);
}

class BrokenTokenizer : public DatasetTest {
 protected:
  /// The error for a file in which one text is replaced.
  std::string ErrorWith(const std::string& from, const std::string& to) {
    std::string text = Content(TestData("llama3.tokenizer.json"));
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
    return strata::ErrorOf([&] { ReadTokenizer(Write("t.json", text)); });
  }
};

/// Every unsupported part that would change the tokens must be named in an error.
TEST_F(BrokenTokenizer, WhatIsNotDoneIsNamed) {
  EXPECT_THAT(ErrorWith("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}"),
              HasSubstr("t.json: the normalizer NFKC is not done; NFC is"));
  EXPECT_THAT(ErrorWith("\\\\p{N}{1,3}", "\\\\p{N}{1,4}"), HasSubstr("splits by"));
  EXPECT_THAT(ErrorWith("\"Isolated\"", "\"Removed\""), HasSubstr("splits by"));
  EXPECT_THAT(ErrorWith("\"type\":\"Sequence\"", "\"type\":\"Metaspace\""),
              HasSubstr("the pre_tokenizer Metaspace is not done"));
  EXPECT_THAT(ErrorWith("\"byte_fallback\":false", "\"byte_fallback\":true"),
              HasSubstr("byte_fallback is not done"));
  EXPECT_THAT(ErrorWith("\"lstrip\":false", "\"lstrip\":true"), HasSubstr("has lstrip"));
  EXPECT_THAT(ErrorWith("\"use_regex\":false", "\"use_regex\":true"), HasSubstr("use_regex"));
  EXPECT_THAT(ErrorWith("\"add_prefix_space\":false", "\"add_prefix_space\":true"),
              HasSubstr("add_prefix_space behind a Split"));
  EXPECT_THAT(ErrorWith("\"merges\":[", "\"merges\":[\"a\","), HasSubstr("a merge has two tokens"));
  EXPECT_THAT(ErrorWith("\"merges\":[", "\"merges\":[\"a \u00ff\","), HasSubstr("is no token"));
  EXPECT_THAT(ErrorWith("\"merges\"", "\"m\""), HasSubstr("the model BPE"));
  for (const char* number : {"-1", "4294967296", "2147483647", "\"a\""}) {
    EXPECT_THAT(ErrorWith("[{\"id\":0", Str("[{\"id\":", number)),
                HasSubstr("<|endoftext|>\" has the number"));
  }
}

TEST_F(BrokenTokenizer, OtherFilesAreNamed) {
  EXPECT_THAT(strata::ErrorOf([&] { ReadTokenizer(Write("t.model", "\x0a\x0e")); }),
              HasSubstr("t.model: it ends in the middle of a field"));
  EXPECT_THAT(strata::ErrorOf([&] { ReadTokenizer(Write("t.txt", "words")); }),
              HasSubstr("t.txt: expected a Hugging Face tokenizer.json, or a SentencePiece model"));
  EXPECT_THAT(strata::ErrorOf([&] { ReadTokenizer(Write("t.json", "{")); }), HasSubstr("t.json"));
  EXPECT_THAT(strata::ErrorOf([&] { ReadTokenizer((folder_ / "none").string()); }),
              HasSubstr("cannot read"));
}

}  // namespace
}  // namespace strata::data
