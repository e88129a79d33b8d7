# SPDX-License-Identifier: Apache-2.0

# The rules that are shipped: doc/CONVERT.md.
convertdir = $(datadir)/reshardfs/convert
dist_convert_DATA = \
	convert/common-affine.rules \
	convert/common-attention.rules \
	convert/common-deepseek-v4.rules \
	convert/common-dense.rules \
	convert/common-experts.rules \
	convert/common-fused-experts.rules \
	convert/common-fused-names.rules \
	convert/common-gguf.rules \
	convert/common-kimi-linear.rules \
	convert/common-latent.rules \
	convert/common-legacy.rules \
	convert/common-longcat-flash.rules \
	convert/common-lora.rules \
	convert/common-megatron-attention.rules \
	convert/common-megatron-experts.rules \
	convert/common-megatron-gemma3.rules \
	convert/common-megatron-indexer.rules \
	convert/common-megatron-linear-attention.rules \
	convert/common-megatron-mamba.rules \
	convert/common-megatron-mlp.rules \
	convert/common-megatron-model.rules \
	convert/common-megatron-vocabulary.rules \
	convert/common-mindformers.rules \
	convert/common-mtp.rules \
	convert/common-qwen3-omni-talker.rules \
	convert/common-qwen3-omni.rules \
	convert/common-rotary.rules \
	convert/common-shared-experts.rules \
	convert/common-state.rules \
	convert/deepseek_v3.rules \
	convert/fused_experts.rules \
	convert/gguf.cuts \
	convert/gguf_llama.rules \
	convert/gguf_qwen3.rules \
	convert/huggingface.cuts \
	convert/huggingface_deepseek_v4.cuts \
	convert/huggingface_llama4.cuts \
	convert/llama.rules \
	convert/llama_legacy.rules \
	convert/megatron.cuts \
	convert/megatron.rules \
	convert/megatron_gemma3.rules \
	convert/megatron_llama4.rules \
	convert/megatron_lora.rules \
	convert/megatron_nemotron_h.rules \
	convert/megatron_qwen3_5.rules \
	convert/meta_llama.cuts \
	convert/meta_llama.rules \
	convert/mindformers.cuts \
	convert/mindformers_legacy.cuts \
	convert/mindformers_lora.rules \
	convert/qwen2.rules \
	convert/qwen2_legacy.rules \
	convert/qwen3.rules \
	convert/qwen3_moe.rules

# The same as texts in the library, which finds them by their names wherever it is.
nodist_librfs_la_SOURCES = src/rules/shipped.c
CLEANFILES += src/rules/shipped.c
src/rules/shipped.c: $(dist_convert_DATA) convert/local.mk
	$(AM_V_GEN)$(MKDIR_P) $(@D) && { \
	  echo '/* SPDX-License-Identifier: Apache-2.0 */'; \
	  echo '/* Made of the folder convert. */'; \
	  echo '/* clang-format off */'; \
	  echo '#include "rules/shipped.h"'; \
	  for kind in rules cuts; do \
	    echo "const struct rfs_rules_file rfs_$${kind}_shipped[] = {"; \
	    for name in $(dist_convert_DATA:convert/%=%); do \
	      case $$name in *.$$kind) ;; *) continue ;; esac; \
	      echo "{\"$$name\","; \
	      sed -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $(top_srcdir)/convert/$$name || exit 1; \
	      echo '},'; \
	    done; \
	    echo '{0}};'; \
	  done; } > $@.tmp && mv $@.tmp $@
