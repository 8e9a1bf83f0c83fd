#include "launcher/process/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace strata::launcher {
namespace {

struct Ends {
  explicit Ends(SocketPair pair = MakeSocketPair())
      : left(std::move(pair.parent)), right(std::move(pair.child)) {}
  Channel left;
  Channel right;
};

Value Numbered(int64_t number) { return Value::MakeMap({{"number", Value(number)}}); }

/// Receives until there are `count` messages.
std::vector<Message> ReceiveAll(Channel& channel, size_t count) {
  std::vector<Message> messages;
  while (messages.size() < count && channel.Receive(messages)) continue;
  return messages;
}

TEST(ChannelTest, CarriesMessagesBothWays) {
  Ends ends;
  const Value sent = Value::MakeMap({{"text", Value("two\nlines \"quoted\"")}, {"x", Value(0.1)}});
  EXPECT_TRUE(ends.left.Send(sent));
  EXPECT_TRUE(ends.right.Send(Numbered(7)));
  EXPECT_EQ(ReceiveAll(ends.right, 1).at(0).body, sent);
  EXPECT_EQ(ReceiveAll(ends.left, 1).at(0).body, Numbered(7));
}

TEST(ChannelTest, KeepsMessagesApartAndInOrder) {
  Ends ends;
  constexpr int kCount = 2000;
  std::thread sender([&] {
    for (int i = 0; i < kCount; ++i) ends.left.Send(Numbered(i));
  });
  const std::vector<Message> messages = ReceiveAll(ends.right, kCount);
  sender.join();
  ASSERT_EQ(messages.size(), static_cast<size_t>(kCount));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(messages[i].body, Numbered(i));
}

TEST(ChannelTest, CarriesMessagesLargerThanItsBuffers) {
  Ends ends;
  const Value sent = Value::MakeMap({{"text", Value(std::string(5'000'000, 'x'))}});
  std::thread sender([&] { ends.left.Send(sent); });
  EXPECT_EQ(ReceiveAll(ends.right, 1).at(0).body, sent);
  sender.join();
}

TEST(ChannelTest, SeveralThreadsMaySend) {
  Ends ends;
  constexpr int kEach = 500;
  std::vector<std::thread> senders;
  for (int i = 0; i < 4; ++i) {
    senders.emplace_back([&] {
      for (int k = 0; k < kEach; ++k) ends.left.Send(Numbered(k));
    });
  }
  EXPECT_EQ(ReceiveAll(ends.right, 4 * kEach).size(), 4u * kEach);
  for (std::thread& sender : senders) sender.join();
}

TEST(ChannelTest, HandsOverDescriptorsWithTheirMessage) {
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

TEST(ChannelTest, TellsWhenTheOtherEndIsGone) {
  Ends ends;
  ends.left.Send(Numbered(1));
  ends.left.Close();
  std::vector<Message> messages;
  EXPECT_TRUE(ends.right.Receive(messages));
  EXPECT_EQ(messages.size(), 1u);
  EXPECT_FALSE(ends.right.Receive(messages));
  EXPECT_FALSE(ends.right.Send(Numbered(2)));
}

}  // namespace
}  // namespace strata::launcher
