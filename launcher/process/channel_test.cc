// Tests of channels over a socket and over two pipes, and of bytes that are not messages.
#include "launcher/process/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/testing.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// Two connected ends, and a descriptor through which any bytes can be sent to `right`.
struct Ends {
  explicit Ends(bool over_pipes = false) {
    ::signal(SIGPIPE, SIG_IGN);
    if (over_pipes) {
      Pipe there = MakePipe(), back = MakePipe();
      left = Channel(std::move(back.read), Fd(::dup(there.write.get())));
      right = Channel(std::move(there.read), std::move(back.write));
      bare = std::move(there.write);
    } else {
      SocketPair pair = MakeSocketPair();
      bare = Fd(::dup(pair.parent.get()));
      left = Channel(std::move(pair.parent));
      right = Channel(std::move(pair.child));
    }
  }
  void CloseLeft() { bare.Close(), left.Close(); }

  Channel left, right;
  Fd bare;
};

Value Numbered(int64_t number) { return TypedMessage("number").Set("number", number); }

/// Receives until `count` messages have arrived.
std::vector<Message> ReceiveAll(Channel& channel, size_t count) {
  std::vector<Message> messages;
  while (messages.size() < count && channel.Receive(messages)) continue;
  return messages;
}

class ChannelTest : public testing::TestWithParam<bool> {
 protected:
  Ends ends_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Over, ChannelTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Pipes" : "Socket"; });

TEST_P(ChannelTest, CarriesMessagesBothWays) {
  const Value sent = TypedMessage("two\nlines \"quoted\"").Set("x", 0.1);
  EXPECT_TRUE(ends_.left.Send(sent));
  EXPECT_TRUE(ends_.right.Send(Numbered(7)));
  EXPECT_EQ(ReceiveAll(ends_.right, 1).at(0).body, sent);
  EXPECT_EQ(ReceiveAll(ends_.left, 1).at(0).body, Numbered(7));
}

TEST_P(ChannelTest, KeepsMessagesApartAndInOrder) {
  constexpr int kCount = 2000;
  std::thread sender([&] {
    for (int i = 0; i < kCount; ++i) ends_.left.Send(Numbered(i));
  });
  const std::vector<Message> messages = ReceiveAll(ends_.right, kCount);
  sender.join();
  ASSERT_EQ(messages.size(), static_cast<size_t>(kCount));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(messages[i].body, Numbered(i));
}

TEST_P(ChannelTest, CarriesMessagesLargerThanItsBuffers) {
  const Value sent = TypedMessage("long").Set("text", std::string(5'000'000, 'x'));
  std::thread sender([&] { ends_.left.Send(sent); });
  EXPECT_EQ(ReceiveAll(ends_.right, 1).at(0).body, sent);
  sender.join();
}

TEST_P(ChannelTest, SeveralThreadsMaySend) {
  constexpr int kEach = 500;
  std::vector<std::thread> senders;
  for (int i = 0; i < 4; ++i) {
    senders.emplace_back([&] {
      for (int k = 0; k < kEach; ++k) ends_.left.Send(Numbered(k));
    });
  }
  EXPECT_EQ(ReceiveAll(ends_.right, 4 * kEach).size(), 4u * kEach);
  for (std::thread& sender : senders) sender.join();
}

// The other end reads nothing until everything has been sent.
TEST_P(ChannelTest, KeepsWhatTheOtherEndDoesNotTakeYet) {
  ends_.left.StopWaiting();
  constexpr int kCount = 200;
  const std::string text(10'000, 'x');
  for (int i = 0; i < kCount; ++i) EXPECT_TRUE(ends_.left.Send(Numbered(i).Set("text", text)));
  EXPECT_GT(ends_.left.waiting(), size_t{0});
  std::vector<Message> messages;
  while (messages.size() < kCount && ends_.right.Receive(messages)) ends_.left.Flush();
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(messages.at(i).body["number"], Value(i));
  EXPECT_EQ(ends_.left.waiting(), 0u);
  EXPECT_TRUE(ends_.left.Receive(messages)) << "there is nothing, and no end";
}

TEST_P(ChannelTest, TellsWhenTheOtherEndIsGone) {
  ends_.left.Send(Numbered(1));
  ends_.CloseLeft();
  EXPECT_FALSE(ends_.left.Send(Numbered(2)));
  std::vector<Message> messages;
  EXPECT_TRUE(ends_.right.Receive(messages));
  EXPECT_EQ(messages.size(), 1u);
  EXPECT_FALSE(ends_.right.Receive(messages));
  EXPECT_FALSE(ends_.right.Send(Numbered(2)));
  EXPECT_EQ(ends_.right.waiting(), 0u);
}

TEST_P(ChannelTest, RefusesAMessageWithoutAnEnd) {
  std::thread sender([&] {
    const std::string bytes(1 << 20, 'x');
    try {
      for (size_t sent = 0; sent <= Channel::kLongest; sent += bytes.size()) {
        WriteAll(ends_.bare.get(), bytes, "the channel");
      }
    } catch (const WorldError&) {  // the receiver has closed the channel
    }
  });
  std::vector<Message> messages;
  EXPECT_THROW(while (ends_.right.Receive(messages)) continue, WorldError);
  ends_.right.Close();
  sender.join();
}

/// Receives `pieces` one after the other. Returns the types of the messages, followed by the error
/// or by "end".
std::string Heard(bool over_pipes, const std::vector<std::string>& pieces) {
  Ends ends(over_pipes);
  std::vector<Message> messages;
  std::string end = ErrorOf([&] {
    for (const std::string& piece : pieces) {
      if (piece.empty()) continue;
      WriteAll(ends.bare.get(), piece, "the channel");
      ends.right.Receive(messages);
    }
    ends.CloseLeft();
    while (ends.right.Receive(messages)) continue;
  });
  std::string text;
  for (const Message& message : messages) text += message.body["type"].as_string() + " ";
  return text + (end == "no error" ? "end" : end);
}

TEST_P(ChannelTest, TakesMessagesInAnyPieces) {
  const std::string text =
      "{\"type\":\"one\"}\n{\"type\":\"\xC3\xA9\",\"list\":[1,\"a\\nb\"]}\r\n { \"type\": \"x\" } "
      "\n";
  const std::string whole = Heard(GetParam(), {text});
  EXPECT_EQ(whole, "one \xC3\xA9 x end");
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      EXPECT_EQ(Heard(GetParam(), {text.substr(0, first), text.substr(first, second - first),
                                   text.substr(second)}),
                whole)
          << first << " " << second;
    }
  }
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(Heard(GetParam(), bytes), whole);
}

TEST_P(ChannelTest, GarbageIsShownAndWhatCameBeforeIsHeard) {
  const std::string good = "{\"type\":\"good\"}\n";
  const std::pair<std::string, std::string> cases[] = {
      {"Welcome to host2!\n", "\"Welcome to host2!\""},
      {"\n", "\"\""},
      {"\r\n", "\"\\r\""},
      {" \n", "\" \""},
      {"null\n", "\"null\""},
      {"7\n", "\"7\""},
      {"[1]\n", "\"[1]\""},
      {"{\n", "\"{\""},
      {"\"type\"\n", "\"\\\"type\\\"\""},
      {"{\"typ\":\"a\"}\n", "\"{\\\"typ\\\":\\\"a\\\"}\""},
      {"{\"type\":null}\n", "\"{\\\"type\\\":null}\""},
      {"{\"type\":1}\n", "\"{\\\"type\\\":1}\""},
      {"{\"type\":\"a\"}}\n", "\"{\\\"type\\\":\\\"a\\\"}}\""},
      {"{\"type\":\"a\"}{\"type\":\"b\"}\n", "expected a message"},
      {"{\"type\":\"a\",\"fds\":1}\n", "\\\"fds\\\":1}\""},  // no descriptor was sent
      {"{\"type\":\"a\",\"fds\":-1}\n", "\\\"fds\\\":-1}\""},
      {"{\"type\":\"a\",\"fds\":\"x\"}\n", "\\\"fds\\\":\\\"x\\\"}\""},
      {"{\"type\":\"a\",\"fds\":18446744073709551616}\n", "expected a message"},
      {"\x16\x03\x01\n", "expected a message"},
      {"GET / HTTP/1.1\r\n", "\"GET / HTTP/1.1\\r\""},
      {std::string(2000, '[') + "\n", "\"" + std::string(60, '[') + "\"..."},
      {std::string("\0\x01\xFF\n", 4), "\"\\u0000\\u0001\xEF\xBF\xBD\""},
  };
  for (const auto& [garbage, shown] : cases) {
    for (const std::vector<std::string>& pieces :
         {std::vector{good + garbage + good}, {good, garbage, good}}) {
      EXPECT_THAT(Heard(GetParam(), pieces),
                  AllOf(StartsWith("good expected a message, got "), HasSubstr(shown)))
          << garbage;
    }
  }
}

// The other end may die in the middle of a line; the incomplete line is dropped.
TEST_P(ChannelTest, ABeginningOfAMessageIsNone) {
  const std::string line = "{\"type\":\"late\"}";
  for (size_t size = 0; size <= line.size(); ++size) {
    EXPECT_EQ(Heard(GetParam(), {"{\"type\":\"whole\"}\n" + line.substr(0, size)}), "whole end")
        << size;
  }
}

TEST(SocketChannelTest, HandsOverDescriptorsWithTheirMessage) {
  Ends ends;
  Pipe first = MakePipe(), second = MakePipe();
  ends.left.Send(Numbered(0));
  const std::array<int, 1> one = {first.write.get()};
  ends.left.Send(Numbered(1), one);
  ends.left.Send(Numbered(2));
  const std::array<int, 2> two = {second.write.get(), first.write.get()};
  ends.left.Send(Numbered(3), two);
  std::vector<Message> messages = ReceiveAll(ends.right, 4);
  EXPECT_TRUE(messages[0].fds.empty());
  EXPECT_TRUE(messages[2].fds.empty());
  ASSERT_EQ(messages[1].fds.size(), 1u);
  ASSERT_EQ(messages[3].fds.size(), 2u);
  WriteAll(messages[3].fds[0].get(), "2", "a pipe");
  char byte = 0;
  EXPECT_EQ(::read(second.read.get(), &byte, 1), 1);
  EXPECT_EQ(byte, '2');
}

TEST(SocketChannelTest, ADescriptorThatDoesNotArriveIsAnError) {
  Ends ends;
  Pipe pipe = MakePipe();
  const std::array<int, 2> two = {pipe.read.get(), pipe.write.get()};
  ends.left.Send(Numbered(1), two);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(pipe.write.get()) + 2;  // one more may be opened
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Message> messages;
  const std::string error = ErrorOf([&] { ends.right.Receive(messages); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(error, HasSubstr("too many open files"));
}

TEST(SocketChannelTest, DescriptorsThatNobodyTookAreClosed) {
  Pipe pipe = MakePipe();
  {
    Ends ends;
    const std::array<int, 1> one = {pipe.write.get()};
    ends.left.Send(Numbered(1), one);
    ReceiveAll(ends.right, 1);  // drops the message and its descriptor
  }
  pipe.write.Close();
  char byte;
  EXPECT_EQ(::read(pipe.read.get(), &byte, 1), 0) << "nobody holds the pipe any more";
}

}  // namespace
}  // namespace strata::launcher
