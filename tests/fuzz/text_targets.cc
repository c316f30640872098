#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/cluster/ranks/slurm_step.h"
#include "tessera/data/text/sentence_pairs.h"
#include "tessera/data/text/vocabulary.h"
#include "tessera/ir/graph.h"
#include "tessera/pipeline/schedule_text.h"
#include "tessera/solver/problem/problem_json.h"
#include "tests/fuzz/mutators.h"
#include "tests/fuzz/round_trip.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

// Problems of the solver

constexpr const char* kProblem =
    R"({"problem":{"name":"p","nodes":{"intervals":[[0,2],[1,3],[2,2]],"costs":[[1,2],[3.5,1e18],[0]],)"
    R"("usages":[[5,6],[7,0],[1]]},"edges":{"nodes":[[0,1],[1,2]],"costs":[[1,2,3,4],[5,6]]},"usage_limit":10}})";

std::string print_problem(const solver::Problem& problem) {
  nlohmann::json json = {{"name", problem.name}, {"nodes", nlohmann::json::object()}};
  json["edges"] = {{"nodes", nlohmann::json::array()}, {"costs", nlohmann::json::array()}};
  for (const char* member : {"intervals", "costs", "usages"}) json["nodes"][member] = nlohmann::json::array();
  const auto costs = [](const std::vector<double>& values) {
    nlohmann::json list = nlohmann::json::array();
    for (const double cost : values) list.push_back(cost == solver::kForbidden ? 1e18 : cost);
    return list;
  };
  for (const auto& node : problem.nodes) {
    json["nodes"]["intervals"].push_back({node.begin, node.end});
    json["nodes"]["costs"].push_back(costs(node.costs));
    json["nodes"]["usages"].push_back(node.usages);
  }
  for (const auto& edge : problem.edges) {
    json["edges"]["nodes"].push_back({edge.u, edge.v});
    json["edges"]["costs"].push_back(costs(edge.costs));
  }
  json["usage_limit"] = problem.usage_limit;
  return nlohmann::json{{"problem", json}}.dump();
}

bool same_problem(const solver::Problem& a, const solver::Problem& b) {
  const auto nodes = [](const solver::ProblemNode& x, const solver::ProblemNode& y) {
    return x.begin == y.begin && x.end == y.end && x.costs == y.costs && x.usages == y.usages;
  };
  const auto edges = [](const solver::Edge& x, const solver::Edge& y) {
    return x.u == y.u && x.v == y.v && x.costs == y.costs;
  };
  return a.name == b.name && a.usage_limit == b.usage_limit &&
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), nodes) &&
         std::equal(a.edges.begin(), a.edges.end(), b.edges.begin(), b.edges.end(), edges);
}

bool problem_parses(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return solver::parse_problem(bytes, "f"); }, print_problem, same_problem);
}

// Graph text

constexpr const char* kGraph = R"(graph train_step
  param fc.weight f32[10,64]
  state moments.fc.weight f32[10,64]
  input x f32[32,64]
  input labels i32[32]
  %1 = matmul x, fc.weight {transpose_b} : f32[32,10] @ fc
  %2 = relu %1 : f32[32,10] in bf16 shard ((4,1)) @ . (grad of %1)
  %3, %4 = softmax_cross_entropy %2, labels {axis=1, scale=0.5, name="a \"b\"", dims=[1,-2]} : f32[], f32[32,10] @ loss
  %5 = relu %1 : f32[32,10] recompute 2 keep_collectives gather_parameters @ block
  %6 = relu %1 : f32[32,10] @ block (again %5)
  return loss = %3, fc.weight = %4
)";

bool graph_parses(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return ir::print(ir::parse(bytes)); },
      [](const std::string& printed) { return printed; }, std::equal_to<>());
}

// Schedules of pipelined steps

constexpr const char* kPipelineSchedule = R"(pipeline_schedule 2 stages
stage 0
  0..10 forward c0 m0
  43..53 backward c0 m0
  53..63 weight_gradient c0 m0
  63..65 update
stage 1
  13..23 forward c1 m0
  23..40 backward c1 m0
  40..42 update
transfers
  10..13 forward c0 m0
  40..43 backward c1 m0
)";

bool pipeline_schedule_parses(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return pipeline::parse_pipeline_schedule(bytes); },
      [](const pipeline::PipelineSchedule& schedule) { return pipeline::print(schedule); }, std::equal_to<>());
}

// Texts to translate

constexpr const char* kVocabulary = "UNK\nPAD\nEOT\nBOT\nthe\nd\xc3\xa9j\xc3\xa0\nvu\n,\n";

bool vocabulary_parses(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return data::Vocabulary::parse(bytes, "f"); },
      [](const data::Vocabulary& vocabulary) { return vocabulary.to_text(); }, std::equal_to<>());
}

constexpr const char* kPairs = "a house\tune maison\n\nd\xc3\xa9j\xc3\xa0 vu\tseen\xc2\xa0 before\r\n";

std::string print_pairs(const std::vector<data::SentencePair>& pairs) {
  MemoryFileSystem files;
  data::write_sentence_pairs(files, "f", pairs);
  return files.read_text("f");
}

bool pairs_parse(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return data::parse_sentence_pairs(bytes, "f"); }, print_pairs,
      std::equal_to<>());
}

constexpr const char* kSegments =
    "<refset trglang=\"en\" setid=\"t\">\n<doc sysid=\"ref\" docid=\"9-a\">\n<seg id=\"1\">One &amp; two</seg>\n"
    "<seg id=\"2\">d\xc3\xa9j\xc3\xa0</seg>\n</doc>\n</refset>\n";

std::string print_segments(const std::vector<data::Segment>& segments) {
  std::string text;
  int64_t line = 1;
  for (const auto& segment : segments) {
    for (; line + 1 < segment.line; ++line) text += "\n";
    if (line < segment.line) {
      text += segment.document.empty() ? "</doc>\n" : fmt::format("<doc docid=\"{}\">\n", segment.document);
      ++line;
    }
    text += fmt::format("<seg id=\"{}\">{}</seg>\n", segment.id, segment.text);
    ++line;
  }
  return text;
}

bool segments_parse(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return data::parse_segments(bytes, "f"); }, print_segments,
      std::equal_to<>());
}

// What Slurm says of a step

bool node_list_expands(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return cluster::expand_node_list(bytes, "f"); },
      [](const std::vector<std::string>& nodes) { return fmt::format("{}", fmt::join(nodes, ",")); },
      std::equal_to<>());
}

bool task_counts_expand(const std::string& text) {
  return comes_back(
      text, [](const std::string& bytes) { return cluster::expand_task_counts(bytes, "f"); },
      [](const std::vector<int>& counts) { return fmt::format("{}", fmt::join(counts, ",")); }, std::equal_to<>());
}

}  // namespace

std::vector<Target> text_targets() {
  return {{"vocabulary", {kVocabulary}, mutate_lines, vocabulary_parses},
          {"sentence_pairs", {kPairs}, mutate_lines, pairs_parse},
          {"segments", {kSegments}, mutate_lines, segments_parse},
          {"node_list", {"node[01-03,07],gpu5", "rack[0-1]node[8,10]-ib,a.b"}, mutate_lines, node_list_expands},
          {"task_counts", {"2(x3),1", "4"}, mutate_lines, task_counts_expand},
          {"problem", {kProblem}, mutate_json, problem_parses},
          {"graph", {kGraph}, mutate_lines, graph_parses},
          {"pipeline", {kPipelineSchedule}, mutate_lines, pipeline_schedule_parses}};
}

}  // namespace tessera::fuzz
