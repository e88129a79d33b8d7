# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: they need what they are for, such as MindSpore, PyTorch and transformers.
EXTRA_DIST += tests/jobs/run \
	tests/jobs/dcp_to_transformers/given tests/jobs/dcp_to_transformers/commands tests/jobs/dcp_to_transformers/check \
	tests/jobs/equal_in_a_script/given tests/jobs/equal_in_a_script/commands tests/jobs/equal_in_a_script/check \
	tests/jobs/huggingface_to_mindspore_ranks/given tests/jobs/huggingface_to_mindspore_ranks/commands \
	tests/jobs/huggingface_to_mindspore_ranks/check \
	tests/jobs/tensors_of_a_rank/given tests/jobs/tensors_of_a_rank/commands tests/jobs/tensors_of_a_rank/check \
	tests/jobs/weights_of_a_rank/given tests/jobs/weights_of_a_rank/commands tests/jobs/weights_of_a_rank/check
