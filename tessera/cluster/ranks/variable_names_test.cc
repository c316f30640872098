#include "tessera/cluster/ranks/variable_names.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::cluster {
namespace {

TEST(VariableNames, AreInOrderAndNoneTwice) {
  const auto names = variable_names();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

TEST(VariableNames, WhatIsKnownAndWhatIsNotTesserasIsPassedOver) {
  EXPECT_EQ(describe_unknown_variables({"TESSERA_JOIN_TIMEOUT_MS", "PATH", "OTHER_TESSERA_RANK", "TESSERAX"}), "");
  EXPECT_EQ(describe_unknown_variables({}), "");
}

TEST(VariableNames, AMisspeltOneIsNamedWithTheOneThatWasMeant) {
  EXPECT_EQ(describe_unknown_variables({"TESSERA_JOIN_TIMEOUT"}),
            "TESSERA_JOIN_TIMEOUT (did you mean TESSERA_JOIN_TIMEOUT_MS?)");
  EXPECT_EQ(describe_unknown_variables({"TESSERA_TIMEOUT"}), "TESSERA_TIMEOUT (did you mean TESSERA_TIMEOUT_MS?)");
  EXPECT_EQ(describe_unknown_variables({"TESSERA_LOGLEVEL"}), "TESSERA_LOGLEVEL (did you mean TESSERA_LOG_LEVEL?)");
  EXPECT_EQ(describe_unknown_variables({"TESSERA_THREADS"}), "TESSERA_THREADS (did you mean TESSERA_NUM_THREADS?)");
  EXPECT_EQ(describe_unknown_variables({"TESSERA_TRASNPORT"}), "TESSERA_TRASNPORT (did you mean TESSERA_TRANSPORT?)");
}

TEST(VariableNames, OnesThatAreNearNothingAreNamedAndAllInOrder) {
  EXPECT_EQ(describe_unknown_variables({"TESSERA_ZEBRA", "TESSERA_RNAK", "TESSERA_"}),
            "TESSERA_, TESSERA_RNAK (did you mean TESSERA_RANK?), TESSERA_ZEBRA");
}

TEST(VariableNames, ThoseOfAServiceOfKubernetesAreNotMeantForTessera) {
  EXPECT_EQ(describe_unknown_variables({"TESSERA_JOB_SERVICE_HOST", "TESSERA_JOB_SERVICE_PORT", "TESSERA_JOB_PORT",
                                        "TESSERA_JOB_PORT_6667_TCP_ADDR"}),
            "");
  EXPECT_EQ(describe_unknown_variables({"TESSERA_JOB_PORT"}), "TESSERA_JOB_PORT");
}

}  // namespace
}  // namespace tessera::cluster
