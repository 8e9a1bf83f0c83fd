#include "launcher/process/streams/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "engine/base/testing.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Value Typed(const std::string& type) { return Value::MakeMap({{"type", Value(type)}}); }

/// Two connected ends.
struct Pair {
  Pair() {
    Pipe there = MakePipe(), back = MakePipe();
    a = JsonLines(std::move(back.read), std::move(there.write));
    b = JsonLines(std::move(there.read), std::move(back.write));
  }
  JsonLines a, b;
};

TEST(JsonLinesTest, MessagesGoBothWaysInOrder) {
  Pair pair;
  ASSERT_TRUE(pair.a.Send(Typed("one")));
  ASSERT_TRUE(pair.a.Send(Typed("two\nlines")));
  std::vector<Value> messages;
  while (messages.size() < 2) ASSERT_TRUE(pair.b.Receive(messages));
  EXPECT_EQ(messages[0], Typed("one"));
  EXPECT_EQ(messages[1], Typed("two\nlines"));
  ASSERT_TRUE(pair.b.Send(Typed("back")));
  messages.clear();
  ASSERT_TRUE(pair.a.Receive(messages));
  EXPECT_EQ(messages[0], Typed("back"));
}

TEST(JsonLinesTest, TheEndOfEach) {
  ::signal(SIGPIPE, SIG_IGN);
  Pair pair;
  pair.a.CloseOutput();
  EXPECT_FALSE(pair.a.Send(Typed("late")));
  std::vector<Value> messages;
  EXPECT_FALSE(pair.b.Receive(messages));
  pair.a.CloseInput();
  EXPECT_FALSE(pair.b.Send(Typed("nobody reads")));
}

TEST(JsonLinesTest, WhatIsNoMessage) {
  for (const char* line : {"hello\n", "[1]\n", "{\"type\": 1}\n", "\n", "{\n"}) {
    Pipe pipe = MakePipe();
    JsonLines lines(std::move(pipe.read), Fd());
    WriteAll(pipe.write.get(), line, "the pipe");
    std::vector<Value> messages;
    EXPECT_THAT(ErrorOf([&] { lines.Receive(messages); }), HasSubstr("expected a message")) << line;
  }
}

/// The result of receiving `pieces` one after the other: the types of the messages, followed by the
/// error or the end.
std::string Heard(const std::vector<std::string>& pieces) {
  Pipe pipe = MakePipe();
  JsonLines lines(std::move(pipe.read), Fd());
  std::vector<Value> messages;
  std::string end = ErrorOf([&] {
    for (const std::string& piece : pieces) {
      if (piece.empty()) continue;
      WriteAll(pipe.write.get(), piece, "the pipe");
      lines.Receive(messages);
    }
    pipe.write.Close();
    while (lines.Receive(messages)) continue;
  });
  std::string text;
  for (const Value& message : messages) text += message["type"].as_string() + " ";
  return text + (end == "no error" ? "end" : end);
}

TEST(JsonLinesTest, PiecesDoNotMatter) {
  const std::string text =
      "{\"type\":\"one\"}\n{\"type\":\"\xC3\xA9\",\"list\":[1,\"a\\nb\"]}\r\n { \"type\": \"x\" } "
      "\n";
  const std::string whole = Heard({text});
  EXPECT_EQ(whole, "one \xC3\xA9 x end");
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      EXPECT_EQ(
          Heard({text.substr(0, first), text.substr(first, second - first), text.substr(second)}),
          whole)
          << first << " " << second;
    }
  }
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(Heard(bytes), whole);
}

TEST(JsonLinesTest, GarbageIsShownAndWhatCameBeforeIsHeard) {
  const std::string good = "{\"type\":\"good\"}\n";
  const std::pair<std::string, const char*> cases[] = {
      {"Welcome to host2!\n", "\"Welcome to host2!\""},
      {"\n", "\"\""},
      {"\r\n", "\"\\r\""},
      {"null\n", "\"null\""},
      {"\"type\"\n", "\"\\\"type\\\"\""},
      {"{\"typ\":\"a\"}\n", "\"{\\\"typ\\\":\\\"a\\\"}\""},
      {"{\"type\":null}\n", "\"{\\\"type\\\":null}\""},
      {"{\"type\":\"a\"}}\n", "\"{\\\"type\\\":\\\"a\\\"}}\""},
      {"{\"type\":\"a\"}{\"type\":\"b\"}\n", "expected a message"},
      {std::string(2000, '[') + "\n", "[[[[[[\""},
      {std::string("\0\x01\xFF\n", 4), "\"\\u0000\\u0001\xEF\xBF\xBD\""},
  };
  for (const auto& [garbage, shown] : cases) {
    for (const std::vector<std::string>& pieces :
         {std::vector{good + garbage + good}, {good, garbage, good}}) {
      EXPECT_THAT(Heard(pieces),
                  AllOf(StartsWith("good expected a message, got "), HasSubstr(shown)))
          << garbage;
    }
  }
}

// The other end may die in the middle of a line. The beginning of the line is dropped.
TEST(JsonLinesTest, ABeginningOfAMessageIsNone) {
  const std::string line = "{\"type\":\"late\"}";
  for (size_t size = 0; size <= line.size(); ++size) {
    EXPECT_EQ(Heard({"{\"type\":\"whole\"}\n" + line.substr(0, size)}), "whole end") << size;
  }
}

}  // namespace
}  // namespace strata::launcher
