// Helpers for tests of transports: ranks that are processes, and the checks that every group must
// pass.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/group.h"
#include "engine/comm/meeting/address.h"
#include "engine/comm/transport.h"
#include "engine/comm/transports/gloo.h"

namespace strata::testing {

inline void Require(bool condition, const std::string& what) {
  if (!condition) throw Error("expected " + what);
}

/// The code of one rank, which runs in a process of its own.
using RankBody = std::function<void(const RankPlace& place)>;

/// Runs `body` in one process for each rank and returns their wait statuses. A body that throws
/// ends its process with exit code 1. Call this before this process has used a tensor.
inline std::vector<int> RunProcesses(int world_size, const RankBody& body) {
  const ListeningSocket store = ListenForRanks({});
  std::vector<pid_t> children;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 0;
      try {
        RankPlace place;
        place.rank = place.local_rank = rank;
        place.world_size = place.local_world_size = world_size;
        place.store_port = store.port;
        if (rank == 0) place.store_fd = store.fd;
        body(place);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        code = 1;
      }
      std::fflush(nullptr);
      _exit(code);
    }
    children.push_back(child);
  }
  close(store.fd);
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    statuses.push_back(status);
  }
  return statuses;
}

/// The links from every rank to every other, for activations and gradients.
inline std::vector<LinkSpec> AllLinks(int world_size) {
  std::vector<LinkSpec> links;
  for (int from = 0; from < world_size; ++from) {
    for (int to = 0; to < world_size; ++to) {
      if (from == to) continue;
      for (const int channel : {0, 1}) links.push_back({from, to, channel});
    }
  }
  return links;
}

/// Forbids this process to read the memory of other processes from now on, as some containers do.
inline void DenyPeerMemory() {
  const auto number = static_cast<unsigned>(offsetof(seccomp_data, nr));
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  Require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "a process without new privileges");
  Require(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a filter of system calls");
}

/// Runs `body` on ranks that are processes with a transport over Gloo. Ranks for which `is_denied`
/// returns true may not read the memory of others.
inline std::vector<int> RunGlooRanks(
    int world_size, const std::vector<GroupSpec>& groups,
    const std::function<void(Transport&)>& body,
    const std::function<bool(int rank)>& is_denied = [](int) { return false; }) {
  return RunProcesses(world_size, [&](const RankPlace& place) {
    if (is_denied(place.rank)) DenyPeerMemory();
    const auto transport = MakeGlooTransport(place, AllLinks(world_size), groups, 60);
    body(*transport);
    // Rank 0 serves the store, so every rank stays until all are done.
    transport->Barrier();
  });
}

inline void ExpectAllWell(const std::vector<int>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_TRUE(WIFEXITED(statuses[rank]) && WEXITSTATUS(statuses[rank]) == 0) << "rank " << rank;
  }
}

/// Test data of place `place`. Their sum over the places depends on the order of its terms.
inline at::Tensor Ragged(int64_t elements, int place, int salt = 0) {
  const at::Tensor i = at::arange(elements, at::kDouble).add(salt);
  return i.mul(0.37 * (place + 1)).sin().mul(place == 1 ? 1e6 : 1).to(at::kFloat);
}

/// Ragged() of all places, reduced in ascending order of places.
inline at::Tensor Reduced(int64_t elements, int places, ReduceOp op, int salt = 0) {
  at::Tensor result = Ragged(elements, 0, salt);
  for (int place = 1; place < places; ++place) {
    const at::Tensor next = Ragged(elements, place, salt);
    if (op == ReduceOp::kMin) result = at::minimum(result, next);
    if (op == ReduceOp::kMax) result = at::maximum(result, next);
    if (op == ReduceOp::kProduct) result = result * next;
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg) result = result + next;
  }
  return op == ReduceOp::kAvg ? result / static_cast<double>(places) : result;
}

/// Numbers of elements on both sides of the size from which tensors are cut into parts.
inline const std::vector<int64_t> kGroupSizes = {0, 1, 7, 4096, 4097, 20011};

inline void CheckReductions(Group& group) {
  const int n = group.size(), me = group.place();
  for (const int64_t elements : kGroupSizes) {
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      const at::Tensor tensor = Ragged(elements, me);
      group.AllReduce(tensor, op);
      Require(at::equal(tensor, Reduced(elements, n, op)),
              Str("the bits of an ascending reduction of ", elements));
    }
    const std::vector<int64_t> bounds = EvenBounds(elements, n, 16);
    const at::Tensor input = Ragged(elements, me);
    const at::Tensor own = input.narrow(0, bounds[me], bounds[me + 1] - bounds[me]);
    group.Run({.kind = Collective::Kind::kReduceScatter,
               .input = input,
               .output = own,
               .bounds = bounds});
    const at::Tensor all = Reduced(elements, n, ReduceOp::kSum);
    Require(at::equal(own, all.narrow(0, bounds[me], own.numel())), "the bits of an all-reduce");
    group.Run(
        {.kind = Collective::Kind::kAllGather, .input = own, .output = input, .bounds = bounds});
    Require(at::equal(input, all), "all parts");
  }
  const at::Tensor numbers = at::arange(3).add(me);
  group.AllReduce(numbers);
  Require(at::equal(numbers, at::arange(3).mul(n).add(n * (n - 1) / 2)), "whole numbers");
}

inline void CheckMoves(Group& group) {
  const int n = group.size(), me = group.place();
  for (const int64_t elements : kGroupSizes) {
    for (int root = 0; root < n; ++root) {
      const at::Tensor tensor = Ragged(elements, me);
      group.Broadcast(tensor, root);
      Require(at::equal(tensor, Ragged(elements, root)), Str("what ", root, " sent"));
    }
    const at::Tensor input = Ragged(elements, me), output = at::zeros({n, elements});
    group.AllGather(input, output);
    for (int p = 0; p < n; ++p) Require(at::equal(output[p], Ragged(elements, p)), "all inputs");
    const at::Tensor outgoing = at::zeros({n, elements});
    for (int p = 0; p < n; ++p) outgoing[p].copy_(Ragged(elements, me, p));
    const at::Tensor incoming = at::zeros({n, elements});
    group.AllToAll(outgoing, incoming);
    for (int p = 0; p < n; ++p) Require(at::equal(incoming[p], Ragged(elements, p, me)), "parts");
    const at::Tensor part = at::zeros({elements});
    for (int p = 0; p < n; ++p) outgoing[p].copy_(Ragged(elements, me, p));
    group.ReduceScatter(outgoing, part, ReduceOp::kMax);
    Require(at::equal(part, Reduced(elements, n, ReduceOp::kMax, me)), "my part of the maxima");
  }
  group.Barrier();
}

/// Checks that a rank may write to its input as soon as its call returns, though other ranks are
/// slower.
inline void CheckMemoryIsFree(Group& group, int rounds) {
  const int n = group.size(), me = group.place();
  constexpr int64_t kElements = 20000;
  for (int round = 0; round < rounds; ++round) {
    const at::Tensor input = Ragged(kElements, me, round), output = at::zeros({n, kElements});
    group.AllGather(input, output);
    input.zero_();
    for (int p = 0; p < n; ++p) {
      Require(at::equal(output[p], Ragged(kElements, p, round)), "inputs before they changed");
    }
    const at::Tensor sum = Ragged(kElements, me, round);
    group.AllReduce(sum);
    const at::Tensor seen = sum.clone();
    sum.zero_();
    Require(at::equal(seen, Reduced(kElements, n, ReduceOp::kSum, round)), "the whole sum");
    const at::Tensor parts = at::full({n, kElements}, round + me, at::kFloat);
    const at::Tensor mine = at::zeros({kElements});
    group.ReduceScatter(parts, mine);
    parts.zero_();
    Require(at::equal(mine, at::full({kElements}, n * round + n * (n - 1) / 2, at::kFloat)),
            "parts before they changed");
    const at::Tensor one = Ragged(kElements, me, round);
    group.Broadcast(one, 0);
    const at::Tensor got = one.clone();
    one.zero_();
    Require(at::equal(got, Ragged(kElements, 0, round)), "the root's numbers");
  }
}

inline void CheckStarted(Group& group) {
  const int n = group.size(), me = group.place();
  std::vector<at::Tensor> tensors;
  std::vector<std::shared_ptr<Pending>> pending;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(Ragged(5000 * i + 3, me, i));
    pending.push_back(group.Start(
        {.kind = Collective::Kind::kAllReduce, .input = tensors[i], .output = tensors[i]}));
  }
  const at::Tensor last = at::full({3}, 1, at::kFloat);
  group.AllReduce(last);  // runs after the calls that were started before
  Require(at::equal(last, at::full({3}, n, at::kFloat)), "a sum of ones");
  for (int i = 7; i >= 0; --i) {
    Require(pending[i]->done() && pending[i]->Wait(0) && pending[i]->Wait(), "what came before");
    Require(at::equal(tensors[i], Reduced(5000 * i + 3, n, ReduceOp::kSum, i)), "the sum");
  }
}

/// Checks messages between all pairs of ranks, in both directions at once, and that a sent tensor
/// may be written to as soon as Send() returns.
inline void CheckMessages(Group& group) {
  const int n = group.size(), me = group.place();
  for (const int64_t elements : {0, 1, 300000}) {
    for (int p = 0; p < n; ++p) {
      if (p == me) continue;
      const at::Tensor mine = Ragged(elements, me, p);
      group.Send(mine, p);
      mine.zero_();
    }
    for (int p = 0; p < n; ++p) {
      if (p == me) continue;
      const at::Tensor theirs = at::zeros({elements});
      group.Recv(theirs, p);
      Require(at::equal(theirs, Ragged(elements, p, me)), "the message of the other place");
    }
    group.Barrier();
  }
}

/// Runs all checks of a group. All its ranks call this; it throws Error on a failure.
inline void CheckGroup(Group& group, int rounds = 3) {
  at::set_num_threads(1);
  CheckReductions(group);
  CheckMoves(group);
  CheckMemoryIsFree(group, rounds);
  CheckStarted(group);
  CheckMessages(group);
}

}  // namespace strata::testing
