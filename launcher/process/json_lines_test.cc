#include "launcher/process/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "engine/base/testing.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;

Value Typed(const std::string& type) { return Value::MakeMap({{"type", Value(type)}}); }

/// Two ends.
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

}  // namespace
}  // namespace strata::launcher
