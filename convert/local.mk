# SPDX-License-Identifier: Apache-2.0

# The rules that are shipped: doc/CONVERT.md.
convertdir = $(datadir)/reshardfs/convert
dist_convert_DATA = \
	convert/common-attention.rules \
	convert/common-dense.rules \
	convert/common-experts.rules \
	convert/common-legacy.rules \
	convert/common-mindformers.rules \
	convert/common-mtp.rules \
	convert/common-state.rules \
	convert/deepseek_v3.rules \
	convert/llama.rules \
	convert/llama_legacy.rules \
	convert/megatron.rules \
	convert/qwen2.rules \
	convert/qwen2_legacy.rules \
	convert/qwen3.rules \
	convert/qwen3_moe.rules
