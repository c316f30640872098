// What `tessera cluster check` finds, of hosts that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/tools/check/check_text.h"
#include "tessera/tools/check/facts.h"
#include "tessera/tools/check/findings.h"
#include "tessera/tools/check/packet_end.h"
#include "tessera/tools/check/survey_facts.h"

namespace tessera::tools {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

HostFacts host(int number) {
  const auto name = "node" + std::to_string(number);
  const auto address = "10.0.0." + std::to_string(number + 1);
  return {.id = name,
          .name = name,
          .ranks = {2 * number, 2 * number + 1},
          .version = "0.1.0",
          .kernel = "Linux 6.1",
          .cpu = "a CPU",
          .cpu_features = {"avx2", "fma"},
          .cores = 16,
          .memory_bytes = int64_t{64} << 30,
          .open_files = 1 << 20,
          .address = address,
          .interfaces = {{"lo", {"127.0.0.1"}, 65536, 0}, {"eth0", {address, "fe80::1"}, 1500, 10000}}};
}

// Hosts that are all alike, each pair of them as fast as the next.
ClusterFacts cluster_of(size_t count) {
  ClusterFacts facts{.transport = "shared memory and tls"};
  for (size_t i = 0; i < count; ++i) facts.hosts.push_back(host(static_cast<int>(i)));
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) facts.pairs.push_back({i, j, 50e-6, 1e9, 1500});
  }
  return facts;
}

std::vector<std::string> found(const ClusterFacts& facts, const std::string& table = "") {
  std::vector<std::string> texts;
  for (const auto& one : find_faults(facts, table, "table.json")) {
    EXPECT_FALSE(one.remedy.empty());
    texts.push_back(std::string(to_string(one.severity)) + ": " + one.what);
  }
  return texts;
}

TEST(ClusterCheck, NothingIsFoundOfHostsThatAreAlike) {
  EXPECT_THAT(found(cluster_of(1)), ElementsAre());
  EXPECT_THAT(found(cluster_of(4)), ElementsAre());
}

TEST(ClusterCheck, WhatIsNotEncryptedBetweenHostsIsSaid) {
  for (const char* transport : {"shared memory and gloo", "mpi"}) {
    auto facts = cluster_of(2);
    facts.transport = transport;
    EXPECT_THAT(found(facts), ElementsAre(AllOf(HasSubstr("warning: what ranks send each other between hosts is not "),
                                                HasSubstr(transport))));
    facts = cluster_of(1);
    facts.transport = transport;
    EXPECT_THAT(found(facts), ElementsAre());
  }
}

TEST(ClusterCheck, HostsThatDifferAreNamedWithWhatTheyHave) {
  auto facts = cluster_of(3);
  facts.hosts[1].version = "0.2.0";
  facts.hosts[1].cpu_features = {"avx2", "fma", "amx_bf16"};
  facts.hosts[2].cores = 8;
  facts.hosts[2].interfaces[1].mtu = 9000;
  EXPECT_THAT(
      found(facts),
      ElementsAre("fault: hosts have different versions of Tessera: 0.1.0 (node0, node2); 0.2.0 (node1)",
                  AllOf(HasSubstr("warning: hosts have CPUs with different features"), HasSubstr("amx_bf16 (node1)")),
                  HasSubstr("16 cores for 2 ranks (node0, node1); 8 cores for 2 ranks (node2)"),
                  HasSubstr("(MTU): 1500 (node0, node1); 9000 (node2)")));
}

TEST(ClusterCheck, ClocksAreComparedWithTheFirstHosts) {
  auto facts = cluster_of(3);
  facts.hosts[1].clock_offset_s = -0.5;
  facts.hosts[2].clock_offset_s = 90;
  EXPECT_THAT(found(facts),
              ElementsAre(AllOf(HasSubstr("fault: node2: its clock is "), HasSubstr(" ahead of that of node0")),
                          AllOf(HasSubstr("warning: node1: its clock is "), HasSubstr(" behind that of node0"))));
}

TEST(ClusterCheck, APairThatIsSlowerThanMostIsNamed) {
  auto facts = cluster_of(4);
  facts.pairs[2].bytes_per_second = 1e8;
  facts.pairs[3].latency_s = 1e-3;
  EXPECT_THAT(found(facts), ElementsAre(HasSubstr("warning: node0 and node3: 95.4 MiB/s between them"),
                                        HasSubstr("warning: node1 and node2: a message takes 1.00 ms")));
}

TEST(ClusterCheck, AWayThatTakesSmallerPacketsThanBothInterfacesIsNamed) {
  auto facts = cluster_of(3);
  for (int i : {0, 2}) facts.hosts[static_cast<size_t>(i)].interfaces[1].mtu = 9000;
  facts.pairs[1].path_mtu = 8950;
  facts.pairs[2].path_mtu = 0;  // it is not known
  EXPECT_THAT(found(facts),
              ElementsAre(HasSubstr("packets have different sizes (MTU)"),
                          "warning: node0 and node2: packets of more than 8950 bytes do not pass between them, their "
                          "interfaces send 9000"));
  EXPECT_THAT(check_text(facts, {}), AllOf(HasSubstr("node0 and node2  50.0 us  953.7 MiB/s  8950\n"),
                                           HasSubstr("node1 and node2  50.0 us  953.7 MiB/s  -\n")));
}

TEST(PacketEnd, ReceivesThePacketsThatCanPass) {
  PacketEnd first("127.0.0.1"), second("127.0.0.1");
  first.connect("127.0.0.1", second.port());
  second.connect("127.0.0.1", first.port());
  for (const int64_t size : {576, 1500, 65535}) {
    first.send(size);
    EXPECT_TRUE(second.receives(size, 10000)) << size;
  }
  first.send(1500);
  EXPECT_FALSE(second.receives(1499, 10));
  EXPECT_THROW(PacketEnd("203.0.113.1"), IoError);  // of no host
}

TEST(PacketEnd, TheLargestPacketIsFoundByTheFewThatAreTried) {
  for (const int64_t largest : {576, 577, 1280, 1499, 1500, 8999, 9000}) {
    int num_tried = 0;
    const auto passes = [&](int64_t size) {
      ++num_tried;
      return size <= largest;
    };
    EXPECT_EQ(largest_that(576, 9000, passes), largest);
    EXPECT_LE(num_tried, 16);
  }
  EXPECT_EQ(largest_that(576, 1500, [](int64_t) { return false; }), 0);
}

TEST(ClusterCheck, NamesAndAddressesThatLeadElsewhereAreFaults) {
  auto facts = cluster_of(2);
  facts.hosts[0].resolved = {{"node0", "127.0.1.1"}, {"node1", "10.0.0.9"}};
  facts.hosts[1].resolved = {{"node0", ""}, {"node1", "10.0.0.2"}};
  facts.hosts[1].address = "127.0.0.1";
  facts.hosts[1].open_files = 256;
  EXPECT_THAT(found(facts),
              ElementsAre(HasSubstr("fault: node0: the name node1 is 10.0.0.9 there, which is no address of that host"),
                          HasSubstr("fault: node1: other hosts cannot reach its address 127.0.0.1"),
                          HasSubstr("packets have different sizes"),
                          HasSubstr("warning: node0: it resolves its own name to 127.0.1.1"),
                          HasSubstr("warning: node1: a process may have 256 open files"),
                          HasSubstr("warning: node1: the name node0 has no address there")));
}

std::string table_of(const std::string& first, const std::string& second, const std::string& last_rank = "3") {
  return R"({"version": "1.0", "server_count": "2", "server_list": [{"server_id": ")" + first +
         R"(", "device": [{"device_id": "0", "device_ip": "10.0.0.1", "rank_id": "0"}, {"device_id": "1", "device_ip": "192.1.1.2", "rank_id": "1"}]},
           {"server_id": ")" +
         second + R"(", "device": [{"device_id": "0", "rank_id": "2"}, {"device_id": "1", "rank_id": ")" + last_rank +
         R"("},]}], "status": "completed"})";
}

TEST(ClusterCheck, ARankTableIsComparedWithTheHosts) {
  const auto facts = cluster_of(2);
  EXPECT_THAT(
      found(facts, table_of("10.0.0.1", "node1")),
      ElementsAre(
          "warning: table.json: device_ip 192.1.1.2 of rank 1 is no address of node0 (127.0.0.1, 10.0.0.1, fe80::1)"));
  EXPECT_THAT(
      found(facts, table_of("10.0.0.2", "10.0.0.1")),
      AllOf(testing::SizeIs(3),
            testing::Contains(HasSubstr("fault: table.json: ranks 2, 3 are at 10.0.0.1 there, but on node1 ("))));
  EXPECT_THAT(found(facts, table_of("10.0.0.1", "node1", "7")),
              testing::Contains("fault: table.json: it has a rank 7 of 4"));
  EXPECT_THAT(found(facts, table_of("10.0.0.1", "node1", "2")),
              testing::Contains("fault: table.json: it has 3 ranks, this job 4"));
  const char* old =
      R"({"group_list": [{"instance_list": [{"devices": [{"device_id": "0", "device_ip": "10.0.0.1"}], "rank_id": "0", "server_id": "10.0.0.8"}]}]})";
  EXPECT_THAT(found(cluster_of(1), old), ElementsAre("fault: table.json: it has 1 rank, this job 2",
                                                     HasSubstr("rank 0 is at 10.0.0.8 there, but on node0 (")));
  for (const char* wrong : {"{", "[]", R"({"server_list": 3})", R"({"server_list": [{"device": [{"rank_id": "x"}]}]})",
                            R"({"server_list": [{"server_id": 3, "device": [{"rank_id": "0"}]}]})"}) {
    EXPECT_THAT(found(facts, wrong), testing::Contains(testing::StartsWith("fault: table.json: "))) << wrong;
  }
}

TEST(ClusterCheck, ARankTableIsNotTrusted) {
  const auto facts = cluster_of(2);
  const auto wide = table_of("10.0.0.1", "node1,]") + std::string(1 << 20, ' ');
  EXPECT_THAT(found(facts, wide), testing::Contains(HasSubstr("at node1,] there")));
  const auto apart = "[1," + std::string(1 << 20, ' ') + "]";
  EXPECT_THAT(found(facts, apart), ElementsAre(testing::StartsWith("fault: table.json: ")));
  for (const char* rank : {"4294967296", "-1", "99999999999999999999"}) {
    EXPECT_THAT(found(facts, table_of("10.0.0.1", "node1", rank)),
                testing::Contains(HasSubstr("fault: table.json: rank_id")))
        << rank;
  }
}

TEST(ClusterCheck, FactsAreReadAsTheyWereSaid) {
  auto one = host(3);
  one.name = "a \"name\"\n";
  one.resolved = {{"node0", "10.0.0.1"}, {"x", ""}};
  one.clock_offset_s = -0.25;
  EXPECT_EQ(parse_host(print_host(one)), one);
  for (const char* text : {"", "{", "{}", "[1]", R"({"id": 3})"})
    EXPECT_THROW(parse_host(text), InvalidArgument) << text;
}

TEST(ClusterCheck, TheTextHasEachHostAndPairAndAVerdict) {
  auto facts = cluster_of(3);
  const auto text = check_text(facts, find_faults(facts));
  EXPECT_THAT(text,
              AllOf(HasSubstr("6 ranks on 3 hosts, by shared memory and tls\n"),
                    HasSubstr("node1  2-3    10.0.0.2  eth0       1500  10 Gb/s  16     64.0 GiB  0      a CPU\n"),
                    HasSubstr("between          latency  bandwidth    path MTU\n"),
                    HasSubstr("node0 and node2  50.0 us  953.7 MiB/s  1500\n"),
                    HasSubstr("nothing keeps these hosts from training\n")));
  facts.hosts[2].version = "9";
  EXPECT_THAT(check_text(facts, find_faults(facts)),
              HasSubstr("1 fault to be mended before these hosts train together\n"));
  EXPECT_THAT(check_json(facts, find_faults(facts)), HasSubstr("\"severity\": \"fault\""));
  auto alone = cluster_of(1);
  alone.pairs = {{0, 1, 1e-6, 1e10}};
  EXPECT_THAT(check_text(alone, find_faults(alone)),
              AllOf(HasSubstr("ranks 0 and 1"), HasSubstr("nothing keeps this host from training")));
}

// A survey of two ranks on each of three hosts: print_host() is what each says.
cluster::Survey survey_of_three_hosts() {
  cluster::Survey survey{.rank = 0, .size = 6};
  for (int rank = 0; rank < survey.size; ++rank) {
    HostFacts own = host(rank / 2);
    own.ranks = {rank};
    survey.words.push_back(print_host(own));
  }
  return survey;
}

TEST(ClusterCheck, HostsThatDoNotReachEachOtherStandInTheTableWithTheReason) {
  cluster::Survey survey = survey_of_three_hosts();
  survey.gaps = {{0, 4, "10.0.0.1", "it has not come"},
                 {4, 0, "10.0.0.1:4567", "No route to host"},
                 {5, 0, "10.0.0.1:4567", "it does not answer"}};
  const ClusterFacts facts = facts_of_survey(survey);
  const auto findings = find_faults(facts);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kFault);
  EXPECT_EQ(findings[0].what,
            "node0 and node2 do not reach each other: rank 4 does not reach rank 0 at 10.0.0.1:4567: No route to host");
  EXPECT_THAT(findings[0].remedy, AllOf(HasSubstr("let TCP through between them"), HasSubstr("TESSERA_INTERFACE")));
  EXPECT_THAT(check_text(facts, findings),
              AllOf(HasSubstr("6 ranks on 3 hosts, by shared memory and tls\n"),
                    HasSubstr("between          latency      bandwidth  path MTU\n"
                              "node0 and node1  -            -          -\n"
                              "node0 and node2  UNREACHABLE  -          -\n"
                              "node1 and node2  -            -          -\n"),
                    HasSubstr("1 fault to be mended before these hosts train together\n")));
  const std::string json = check_json(facts, findings);
  EXPECT_THAT(json, AllOf(HasSubstr("\"is_reachable\": false"), HasSubstr("\"latency_s\": null"),
                          HasSubstr("\"why\": \"rank 4 does not reach rank 0")));
}

TEST(ClusterCheck, WhoHasNotComeIsSaidByRank0) {
  cluster::Survey survey{.rank = 0, .size = 2, .missing = "rank 1 did not join the job within 30000 ms"};
  survey.words = {print_host(host(0)), ""};
  const ClusterFacts facts = facts_of_survey(survey);
  const auto findings = find_faults(facts);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kFault);
  EXPECT_EQ(findings[0].what, "rank 1 did not join the job within 30000 ms");
  EXPECT_THAT(check_text(facts, findings), HasSubstr("node0 and who has not come  UNREACHABLE  -          -\n"));
  EXPECT_THAT(check_json(facts, findings), HasSubstr("\"is_reachable\": false"));
}

TEST(ClusterCheck, RanksThatDoNotMeetOnOneHostAreAFaultToo) {
  cluster::Survey survey = survey_of_three_hosts();
  survey.gaps = {{3, 2, "10.0.0.2:4567", "Connection refused"}};
  const auto facts = facts_of_survey(survey);
  EXPECT_THAT(found(facts), ElementsAre(HasSubstr("fault: node1 and node1 do not reach each other: rank 3 does not")));
}

}  // namespace
}  // namespace tessera::tools
