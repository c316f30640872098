#include "tessera/checkpoint/write/save_trigger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string config_refusal(const CheckpointConfig& config) {
  return message_of([&] { validated(config); });
}

TEST(CheckpointConfig, HasTheReferencesRules) {
  const auto defaults = validated({});
  EXPECT_EQ(defaults.save_checkpoint_steps, 1);
  EXPECT_EQ(defaults.keep_checkpoint_max, 5);
  EXPECT_EQ(validated({.save_checkpoint_steps = 2, .save_checkpoint_seconds = 9}).save_checkpoint_seconds, 0);
  EXPECT_EQ(validated({.keep_checkpoint_max = 2, .keep_checkpoint_per_n_minutes = 9}).keep_checkpoint_per_n_minutes, 0);
  EXPECT_EQ(validated({.keep_checkpoint_max = 0}).keep_checkpoint_max, 1) << "0 and 0 keep one file";
  EXPECT_EQ(validated({.keep_checkpoint_max = 0, .keep_checkpoint_per_n_minutes = 9}).keep_checkpoint_max, 0);
}

TEST(CheckpointConfig, GoesByATimeThatIsGivenAlone) {
  const auto by_time = validated({.save_checkpoint_seconds = 600, .keep_checkpoint_per_n_minutes = 30});
  EXPECT_EQ(by_time.save_checkpoint_steps, 0);
  EXPECT_EQ(by_time.save_checkpoint_seconds, 600);
  EXPECT_EQ(by_time.keep_checkpoint_max, 0);
  EXPECT_EQ(by_time.keep_checkpoint_per_n_minutes, 30);
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(disabled_fields({.save_checkpoint_seconds = 600, .keep_checkpoint_per_n_minutes = 30}), IsEmpty());
  EXPECT_THAT(disabled_fields({.save_checkpoint_steps = 0, .save_checkpoint_seconds = 600}), IsEmpty());
  EXPECT_THAT(
      disabled_fields({.save_checkpoint_steps = 100,
                       .save_checkpoint_seconds = 600,
                       .keep_checkpoint_max = 3,
                       .keep_checkpoint_per_n_minutes = 30}),
      ElementsAre("save_checkpoint_seconds = 600 has no effect beside save_checkpoint_steps = 100: leave one of "
                  "them out",
                  "keep_checkpoint_per_n_minutes = 30 has no effect beside keep_checkpoint_max = 3: leave one "
                  "of them out"));
}

TEST(CheckpointConfig, RefusalsNameTheField) {
  EXPECT_THAT(config_refusal({.save_checkpoint_steps = 0, .keep_checkpoint_max = 0}), HasSubstr("are all 0"));
  EXPECT_THAT(config_refusal({.save_checkpoint_steps = -1}),
              HasSubstr("save_checkpoint_steps must not be negative, got -1"));
  EXPECT_EQ(config_refusal({.enc_key = "0123456789abcdef"}), "no error");
  EXPECT_THAT(config_refusal({.enc_key = "0123"}), HasSubstr("must have 16, 24 or 32 bytes, it has 4"));
  EXPECT_THAT(
      config_refusal({.enc_mode = "ROT13"}),
      HasSubstr("the mode of an encrypted checkpoint must be \"AES-GCM\", \"AES-GCM/reference\" or \"AES-CBC\""));
  EXPECT_THAT(config_refusal({.enc_mode = "AES-GCM/reference"}),
              HasSubstr("the mode \"AES-GCM/reference\" without a key encrypts nothing: give the key"));
  EXPECT_THAT(config_refusal({.enc_key = "0123456789abcdef", .enc_mode = "AES-CBC"}),
              HasSubstr("AES-CBC is only read: a file in that form does not notice when it is changed; save with"));
  EXPECT_THAT(config_refusal({.append_info = {"epoch"}}),
              HasSubstr("append_info takes \"epoch_num\" and \"step_num\""));
}

TEST(CheckpointConfig, AppendsWhatIsAskedFor) {
  const CheckpointConfig config{.append_info = {"step_num", "epoch_num"}, .append_values = {Entry::number("lr", 0.5F)}};
  const auto entries = appended_entries(config, {.epoch = 2, .step_in_epoch = 3, .step = 13});
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].name, "step_num");
  EXPECT_EQ(entries[0].owner.item(), 13);
  EXPECT_EQ(entries[1].owner.item(), 2);
  EXPECT_EQ(entries[2].owner.item(), 0.5);
}

TEST(SaveTrigger, CountsStepsFromTheLastSave) {
  FakeClock clock;
  SaveTrigger trigger(validated({.save_checkpoint_steps = 3}), clock, /*resumed_step=*/10);
  EXPECT_FALSE(trigger.is_due(12));
  EXPECT_TRUE(trigger.is_due(13));
  EXPECT_TRUE(trigger.is_due(14)) << "a sink loop may step over it";
  trigger.saved(14);
  EXPECT_FALSE(trigger.is_due(16));
  EXPECT_FALSE(trigger.is_due_at_end(14));
  EXPECT_TRUE(trigger.is_due_at_end(16));
}

TEST(SaveTrigger, GoesByTimeWithoutSteps) {
  FakeClock clock;
  SaveTrigger trigger(validated({.save_checkpoint_steps = 0, .save_checkpoint_seconds = 60}), clock);
  clock.sleep_ms(59'999);
  EXPECT_FALSE(trigger.is_due(5));
  clock.sleep_ms(1);
  EXPECT_TRUE(trigger.is_due(5));
  trigger.saved(5);
  clock.sleep_ms(60'000);
  EXPECT_FALSE(trigger.is_due(5)) << "saved already";
  EXPECT_TRUE(trigger.is_due(6));
}

}  // namespace
}  // namespace tessera::checkpoint
