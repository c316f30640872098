#include "tessera/cluster/ranks/slurm_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::cluster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::ThrowsMessage;

std::vector<std::string> nodes_of(std::string_view text) { return expand_node_list(text, "SLURM_STEP_NODELIST"); }
std::vector<int> counts_of(std::string_view text) { return expand_task_counts(text, "SLURM_STEP_TASKS_PER_NODE"); }

TEST(NodeList, ExpandsBracketsInTheirOrderWithTheirZeros) {
  EXPECT_THAT(nodes_of("gpu5"), ElementsAre("gpu5"));
  EXPECT_THAT(nodes_of("node[01-03,07],gpu5"), ElementsAre("node01", "node02", "node03", "node07", "gpu5"));
  EXPECT_THAT(nodes_of("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(nodes_of("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(nodes_of("b,a[2,1]"), ElementsAre("b", "a2", "a1"));
  EXPECT_THAT(nodes_of("rack[0-1]node[8,10]"), ElementsAre("rack0node8", "rack0node10", "rack1node8", "rack1node10"));
  EXPECT_THAT(nodes_of("node[1-2]-ib.example"), ElementsAre("node1-ib.example", "node2-ib.example"));
  EXPECT_THAT(nodes_of("[7]"), ElementsAre("7"));
}

TEST(NodeList, RefusesWhatIsNoneAndSaysWhichPartOfIt) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "it names no node"},
           {"a,,b", "a name is empty"},
           {"a,", "a name is empty"},
           {"a[1-2", "\"[\" has no \"]\""},
           {"a]", "\"]\" has no \"[\""},
           {"a[]", "expected a number of 1 to 9 digits, got \"\""},
           {"a[1,]", "expected a number of 1 to 9 digits, got \"\""},
           {"a[b]", "got \"b\""},
           {"a[-3]", "got \"\""},
           {"a[1-]", "got \"\""},
           {"a[1-2-3]", "got \"2-3\""},
           {"a[[1]]", "got \"[1\""},
           {"a[3-2]", "the range \"3-2\" ends before it begins"},
           {"a[1234567890]", "got \"1234567890\""},
           {"a b", "not \" \""},
           {"a;reboot", "not \";\""},
           {"$(reboot)", "not \"$\""},
           {"a\x1b[31m", "not \"\\x1b\""},
           {std::string(300, 'a'), "a node's name has at most 255 characters"}}) {
    EXPECT_THAT([&] { nodes_of(text); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("SLURM_STEP_NODELIST: \""), HasSubstr(why))))
        << text;
  }
}

TEST(NodeList, ShowsLittleOfALongTextAndNothingThatSteersATerminal) {
  EXPECT_THAT([] { nodes_of("\x1b[2J" + std::string(100'000, 'x')); },
              ThrowsMessage<InvalidArgument>(AllOf(SizeIs(testing::Lt(400)), Not(HasSubstr("\x1b")))));
}

TEST(NodeList, IsBounded) {
  EXPECT_THAT(nodes_of("n[1-16384]"), SizeIs(kMaxSlurmNodes));
  for (const std::string text :
       {"n[0-16384]", "n[1-16384],m", "n[0-999999999]", "n[0-16383][0-16383]", "[0-9][0-9][0-9][0-9][0-9]"}) {
    EXPECT_THAT([&] { nodes_of(text); },
                ThrowsMessage<InvalidArgument>(HasSubstr("it stands for more than 16384 nodes")))
        << text;
  }
  const std::string long_name(200, 'n');
  EXPECT_THAT([&] { nodes_of(long_name + "[1-16384]"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("names of more than 1048576 bytes")));
  EXPECT_THAT([] { nodes_of(std::string(2 << 20, ',')); },
              ThrowsMessage<InvalidArgument>(HasSubstr("it has 2097152 bytes, a list has at most")));
  // Brackets within brackets of one name: as deep as a name has characters.
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "[1]";
  EXPECT_THAT([&] { nodes_of(deep); }, ThrowsMessage<InvalidArgument>(HasSubstr("at most 255 characters")));
}

TEST(TaskCounts, ExpandsThem) {
  EXPECT_THAT(counts_of("4"), ElementsAre(4));
  EXPECT_THAT(counts_of("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(counts_of("1,8(x2)"), ElementsAre(1, 8, 8));
}

TEST(TaskCounts, RefusesWhatIsNone) {
  for (const auto& [text, why] :
       std::vector<std::pair<std::string, std::string>>{{"", "it names no node's tasks"},
                                                        {"0", "expected a number from 1 on, got 0"},
                                                        {"-1", "got \"-1\""},
                                                        {"2,", "got \"\""},
                                                        {"2(x0)", "expected a number from 1 on, got 0"},
                                                        {"2(x)", "got \"\""},
                                                        {"2(3)", "expected TASKS or TASKS(xNODES), got \"2(3)\""},
                                                        {"2(x3", "expected TASKS or TASKS(xNODES), got \"2(x3\""},
                                                        {"2(x3)4", "expected TASKS or TASKS(xNODES)"},
                                                        {"(", "got \"\""},
                                                        {"2(x16385)", "it stands for more than 16384 nodes"},
                                                        {"2(x16384),1", "it stands for more than 16384 nodes"},
                                                        {"2(x9999999999)", "expected a number of 1 to 9 digits"},
                                                        {"two", "got \"two\""}}) {
    EXPECT_THAT([&] { counts_of(text); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("SLURM_STEP_TASKS_PER_NODE: \""), HasSubstr(why))))
        << text;
  }
}

// Task 2 of three on two nodes.
SlurmVariables third_task() {
  return {.procid = "2",
          .num_tasks = "3",
          .localid = "0",
          .tasks_per_node = "2,1",
          .node_list = "node[1-2]",
          .job_id = "17",
          .step_id = "0",
          .cluster_name = "blue",
          .restart_count = "",
          .own_node = "node2"};
}

SlurmVariables with(std::string SlurmVariables::*variable, const std::string& value) {
  SlurmVariables variables = third_task();
  variables.*variable = value;
  return variables;
}

TEST(SlurmStep, IsWhatSrunTellsATask) {
  const auto step = parse_slurm_step(third_task());
  ASSERT_TRUE(step);
  EXPECT_EQ(step->rank, 2);
  EXPECT_EQ(step->local_rank, 0);
  EXPECT_EQ(step->size, 3);
  EXPECT_THAT(step->nodes, ElementsAre("node1", "node2"));
  EXPECT_EQ(step->own_node, "node2");
}

TEST(SlurmStep, HasANameThatItsTasksShareAndNoOtherStepHas) {
  const std::string name = parse_slurm_step(third_task())->name;
  SlurmVariables first = third_task();
  first.procid = "0";
  first.own_node = "node1";
  EXPECT_EQ(parse_slurm_step(first)->name, name);
  EXPECT_NE(parse_slurm_step(with(&SlurmVariables::job_id, "18"))->name, name);
  EXPECT_NE(parse_slurm_step(with(&SlurmVariables::step_id, "1"))->name, name);
  EXPECT_NE(parse_slurm_step(with(&SlurmVariables::cluster_name, "red"))->name, name);
  EXPECT_NE(parse_slurm_step(with(&SlurmVariables::restart_count, "1"))->name, name);
  // 1 1 is not 11.
  SlurmVariables one = third_task(), other = third_task();
  one.job_id = "1", one.step_id = "11", other.job_id = "11", other.step_id = "1";
  EXPECT_NE(parse_slurm_step(one)->name, parse_slurm_step(other)->name);
}

TEST(SlurmStep, IsNoneOutsideOfSrunAndInTheShellsOfSbatchAndSalloc) {
  EXPECT_FALSE(parse_slurm_step({}));
  // As sbatch has it: a task's number and how many there may be, and no step.
  EXPECT_FALSE(parse_slurm_step(with(&SlurmVariables::step_id, "")));
  for (const char* shell : {"4294967291", "4294967290", "4294967292", "-5"}) {
    EXPECT_FALSE(parse_slurm_step(with(&SlurmVariables::step_id, shell))) << shell;
  }
  EXPECT_FALSE(parse_slurm_step(with(&SlurmVariables::procid, "")));
  SlurmVariables alone = third_task();
  alone.num_tasks = "1";
  alone.procid = "0";
  alone.node_list = alone.tasks_per_node = "";
  EXPECT_FALSE(parse_slurm_step(alone));
}

TEST(SlurmStep, OfTheShellOfAJobItIsKnownHowManyTasksItHas) {
  EXPECT_EQ(tasks_of_shell(with(&SlurmVariables::step_id, "")), 3);
  EXPECT_EQ(tasks_of_shell(with(&SlurmVariables::step_id, "4294967290")), 3);
  EXPECT_EQ(tasks_of_shell(third_task()), 0);  // srun has started it
  SlurmVariables untold = with(&SlurmVariables::step_id, "");
  untold.num_tasks = "";
  EXPECT_EQ(tasks_of_shell(untold), 0);
  untold.num_tasks = "many";
  EXPECT_EQ(tasks_of_shell(untold), 0);
  EXPECT_EQ(tasks_of_shell({}), 0);
}

TEST(SlurmStep, RefusesVariablesThatContradictEachOther) {
  for (const auto& [variables, why] : std::vector<std::pair<SlurmVariables, std::string>>{
           {with(&SlurmVariables::procid, "3"), "SLURM_PROCID must be from 0 to 2, got 3"},
           {with(&SlurmVariables::procid, "one"), "SLURM_PROCID must be an integer"},
           {with(&SlurmVariables::num_tasks, "0"), "SLURM_STEP_NUM_TASKS must be from 1 to"},
           {with(&SlurmVariables::num_tasks, ""), "SLURM_STEP_NUM_TASKS is not set"},
           {with(&SlurmVariables::num_tasks, "4"), "is 3 tasks on 2 nodes, but SLURM_STEP_NUM_TASKS is 4"},
           {with(&SlurmVariables::node_list, "node1"), "SLURM_STEP_NODELIST=node1 has 1 node"},
           {with(&SlurmVariables::localid, "2"), "SLURM_LOCALID must be from 0 to 1, got 2"},
           {with(&SlurmVariables::localid, ""), "SLURM_LOCALID is not set"},
           {with(&SlurmVariables::job_id, ""), "SLURM_JOB_ID must be an integer"},
           {with(&SlurmVariables::step_id, "first"), "SLURM_STEP_ID must be an integer"},
           {with(&SlurmVariables::restart_count, "x"), "SLURM_RESTART_COUNT must be an integer"}}) {
    EXPECT_THAT([&] { parse_slurm_step(variables); }, ThrowsMessage<InvalidArgument>(HasSubstr(why))) << why;
  }
}

}  // namespace
}  // namespace tessera::cluster
