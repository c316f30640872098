// Ranks as real processes over TLS and Gloo, and under mpirun over every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/cluster/hub/hub.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/test_job.h"
#include "tessera/comm/wire/gloo.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

void expect_checksums(const Outcome& outcome, int size, const std::string& transport) {
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const std::string expected = checksum_of_threads(size);
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("{} rank {} of {} local {} of {} over {}\n", expected, rank, size,
                                                   rank, size, transport)));
  }
}

// By name: ranks of one host that do not share memory.
class Sockets : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Sockets, testing::Values("tls", "gloo"),
                         [](const auto& transport) { return std::string(transport.param); });

TEST_P(Sockets, GivesTheBitsOfThreads) {
  expect_checksums(run_job({"script"}, {.num_processes = 3, .transport = GetParam()}), 3, GetParam());
}

TEST_P(Sockets, UsesTheInterfaceThatIsAskedFor) {
  expect_checksums(run_job({"script"}, {.num_processes = 2, .transport = GetParam(), .interface = "lo"}), 2,
                   GetParam());
}

TEST_P(Sockets, AnUnknownInterfaceIsRefusedWithThoseThatExist) {
  const Outcome outcome = run_job({"script"}, {.num_processes = 2, .transport = GetParam(), .interface = "eth99"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no network interface \"eth99\"; this host has"), HasSubstr("lo")));
}

TEST_P(Sockets, AKilledRankEndsTheJobAtOnce) {
  const Outcome outcome = run_job({"die", "1"}, {.num_processes = 3, .transport = GetParam()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_THAT(outcome.err, HasSubstr("because rank 1 failed: its process has ended without a word"));
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 1 failed: killed by signal SIGKILL"));
}

TEST_P(Sockets, AnErrorReachesThePeersWithItsMessage) {
  const Outcome outcome = run_job({"throw", "0"}, {.num_processes = 3, .transport = GetParam()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("[0] rank 0: error: the shape is wrong\n"), HasSubstr("error: stopped in"),
                    HasSubstr("because rank 0 failed\n"), HasSubstr("tessera run: rank 0 failed: exit code 1")));
}

// The deadline of jobs one of whose ranks comes too late. Within it all processes start and meet, also where the
// machine keeps one of them waiting.
constexpr int64_t kLateMs = 6000;

TEST_P(Sockets, ALateRankIsNamedAtTheDeadline) {
  const Outcome outcome =
      run_job({"late", "1"}, {.num_processes = 2, .transport = GetParam(), .timeout_ms = kLateMs, .grace_ms = 200});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 60);
  EXPECT_THAT(outcome.err,
              HasSubstr(fmt::format("rank 0: error: barrier \"too late\" #2 of group \"world\": rank 0 "
                                    "heard nothing from rank 1 for {} ms; where that rank only works for "
                                    "longer, raise the deadline: tessera run --timeout, or TESSERA_TIMEOUT_MS\n",
                                    kLateMs)));
}

TEST_P(Sockets, ALateRankIsSpokenOfWhileTheOthersWait) {
  const Outcome outcome =
      run_job({"late", "1"}, {.num_processes = 3, .transport = GetParam(), .timeout_ms = kLateMs, .grace_ms = 200});
  EXPECT_THAT(outcome.err, testing::ContainsRegex("barrier \"too late\" #2 of group \"world\": ranks? .* ha.* waited "
                                                  "[0-9]+ ms for .*rank 1: it waits"));
}

TEST_P(Sockets, ARankThatLeavesOrDiffersIsNamed) {
  EXPECT_THAT(run_job({"leave", "1"}, {.num_processes = 2, .transport = GetParam()}).err,
              HasSubstr("rank 0 waits for rank 1, which has ended without making this call"));
  EXPECT_THAT(run_job({"mismatch", "1"}, {.num_processes = 2, .transport = GetParam()}).err,
              AllOf(HasSubstr("makes another call than rank"), HasSubstr("broadcast \"weights\" #1")));
}

// Ranks that pretend to be on hosts of two.
std::vector<std::string> on_hosts_of_two() {
  return {"sh", "-c", "TESSERA_HOST_ID=$((TESSERA_RANK / 2)) exec " + rank_program() + " \"$@\"", "sh"};
}

// The words with which rank 0 says that what goes between hosts is not encrypted.
constexpr const char* kPlain = "what ranks send each other between hosts is not encrypted";

TEST(Hosts, ShareMemoryWithinAndUseTlsBetween) {
  for (const std::string transport : {"", "tls", "gloo"}) {
    const Outcome outcome =
        run_job({"script"}, {.command = on_hosts_of_two(), .num_processes = 5, .transport = transport});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string expected = checksum_of_threads(5, 2);
    for (int rank = 0; rank < 5; ++rank) {
      EXPECT_THAT(outcome.out,
                  HasSubstr(fmt::format("{} rank {} of 5 local {} of {} over shared memory and {}\n", expected, rank,
                                        rank % 2, rank == 4 ? 1 : 2, transport.empty() ? "tls" : transport)));
    }
    if (transport == "gloo") {
      EXPECT_THAT(outcome.err, HasSubstr(std::string("TESSERA_TRANSPORT=gloo: ") + kPlain));
      EXPECT_EQ(outcome.err.find(kPlain), outcome.err.rfind(kPlain)) << outcome.err;
    } else {
      EXPECT_THAT(outcome.err, Not(HasSubstr(kPlain)));
    }
  }
}

TEST(Hosts, WhatDoesNotEncryptIsRefusedWhereThereAreCertificates) {
  for (const std::string transport : {"gloo", "mpi"}) {
    const Outcome outcome = run_command(
        "TESSERA_RANK=0 TESSERA_SIZE=2 TESSERA_STORE=unix:x TESSERA_TLS_CONFIG=/x TESSERA_TRANSPORT=" + transport +
        " " + rank_program());
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("TESSERA_TRANSPORT=" + transport +
                                       ": what it sends is not encrypted, and TESSERA_TLS_CONFIG asks for TLS"));
  }
}

TEST(Hosts, ALateRankIsSpokenOfOnAllOfThem) {
  const Outcome outcome = run_job(
      {"late", "3"}, {.command = on_hosts_of_two(), .num_processes = 4, .timeout_ms = kLateMs, .grace_ms = 200});
  EXPECT_THAT(outcome.err, testing::ContainsRegex("waited [0-9]+ ms for .*rank 3: it waits in the system call "
                                                  "clock_nanosleep"));
}

TEST(Hosts, AKilledRankEndsTheJobOnAllOfThem) {
  const Outcome outcome = run_job({"die", "3"}, {.command = on_hosts_of_two(), .num_processes = 4});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_THAT(outcome.err, HasSubstr("because rank 3 failed: its process has ended without a word"));
}

TEST(Mpi, WithoutMpirunIsRefused) {
  const Outcome outcome = run_job({"script"}, {.num_processes = 2, .transport = "mpi"});
  EXPECT_EQ(outcome.code, 1);
#ifdef TESSERA_MPIEXEC
  EXPECT_THAT(outcome.err, HasSubstr("start the program by mpirun"));
#else
  EXPECT_THAT(outcome.err, HasSubstr("cannot load the MPI plugin"));
#endif
}

TEST(Mpi, AMissingPluginIsNamedWithThePlacesSought) {
  const Outcome outcome = run_command(
      "TESSERA_RANK=0 TESSERA_SIZE=2 TESSERA_STORE=unix:x TESSERA_TRANSPORT=mpi "
      "TESSERA_PLUGIN_DIR=/no/such/folder " +
      rank_program());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("rank 0: error: cannot load the MPI plugin: no such file; sought at "
                                     "/no/such/folder/libtessera_mpi_plugin.so"));
}

#ifdef TESSERA_MPIEXEC

std::string mpirun(const std::string& environment, const std::string& mode) {
  return environment + " " + TESSERA_MPIEXEC + " --allow-run-as-root --oversubscribe -n 4 " + rank_program() + " " +
         mode;
}

// Before a transport: who waits in vain for a rank that has failed waits longer than a test may take.
const std::string kPatient = "TESSERA_TIMEOUT_MS=200000 TESSERA_TRANSPORT=";

TEST(Mpirun, StartsRanksOverSharedMemoryByItself) {
  expect_checksums(run_command(mpirun("", "script")), 4, "shared memory");
}

TEST(Mpirun, EveryTransportGivesTheBitsOfThreads) {
  expect_checksums(run_command(mpirun("TESSERA_TRANSPORT=tls", "script")), 4, "tls");
  expect_checksums(run_command(mpirun("TESSERA_TRANSPORT=gloo", "script")), 4, "gloo");
  expect_checksums(run_command(mpirun("TESSERA_TRANSPORT=mpi", "script")), 4, "mpi");
}

TEST(Mpirun, GoesBetweenHostsOnly) {
  const std::string program =
      "sh -c 'TESSERA_HOST_ID=$((OMPI_COMM_WORLD_RANK / 2)) exec " + rank_program() + " script'";
  const Outcome outcome = run_command(std::string("TESSERA_TRANSPORT=mpi ") + TESSERA_MPIEXEC +
                                      " --allow-run-as-root --oversubscribe -n 4 " + program);
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out,
              HasSubstr(checksum_of_threads(4, 2) + " rank 3 of 4 local 1 of 2 over shared memory and mpi\n"));
}

TEST(Mpirun, RanksCanMeetThroughMpi) {
  // As on several hosts, where no name is known to all.
  expect_checksums(run_command(mpirun("TESSERA_STORE=mpi", "script")), 4, "shared memory");
}

TEST(Mpirun, AFailureEndsTheJob) {
  for (const std::string transport : {"shm", "tls", "gloo", "mpi"}) {
    for (const std::string mode : {"throw 2", "die 2"}) {
      const Outcome outcome = run_command(mpirun(kPatient + transport, mode));
      EXPECT_NE(outcome.code, 0) << transport << " " << mode;
      EXPECT_LT(outcome.seconds, 100) << transport << " " << mode;
      if (mode == "throw 2") {
        EXPECT_THAT(outcome.out, HasSubstr("rank 2: error: the shape is wrong"));
      } else {
        // Whichever mpirun sees first: the signal, or a peer that has ended for want of rank 2.
        EXPECT_THAT(outcome.out, AnyOf(HasSubstr("signal 9"), HasSubstr("rank 2 failed")));
      }
    }
  }
}

TEST(Mpirun, ALateRankIsSpokenOfWhileTheOthersWait) {
  const Outcome outcome = run_command(mpirun("TESSERA_TIMEOUT_MS=6000 TESSERA_TRANSPORT=mpi", "late 1"));
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.out, testing::ContainsRegex("barrier \"too late\" #2 of group \"world\": ranks? .* ha.* waited "
                                                  "[0-9]+ ms for .*rank 1: it waits"));
}

TEST(Mpirun, AnExitCodeOfOneRankEndsTheJob) {
  for (const std::string transport : {"shm", "tls", "gloo", "mpi"}) {
    const Outcome outcome = run_command(mpirun(kPatient + transport, "return 2"));
    EXPECT_NE(outcome.code, 0) << transport;
    EXPECT_LT(outcome.seconds, 100) << transport;
    // Whichever mpirun sees first: the rank's own end, or that of a peer, which says why.
    EXPECT_THAT(outcome.out, AnyOf(testing::ContainsRegex("Exit code: +3\n"),
                                   HasSubstr("because rank 2 failed: it has ended with exit code 3")))
        << transport;
    EXPECT_THAT(outcome.out, Not(HasSubstr("*** Process received signal"))) << transport;
  }
}

#endif

}  // namespace
}  // namespace tessera
