# SPDX-License-Identifier: Apache-2.0
bashcompletiondir = $(datadir)/bash-completion/completions
install-data-hook: install-completions
uninstall-hook: uninstall-completions
# bash finds them by the command's name.
install-completions:
	$(MKDIR_P) '$(DESTDIR)$(bashcompletiondir)'
	$(INSTALL_DATA) $(srcdir)/contrib/completions/reshard.bash '$(DESTDIR)$(bashcompletiondir)/reshard'
	$(INSTALL_DATA) $(srcdir)/contrib/completions/reshardfs.bash '$(DESTDIR)$(bashcompletiondir)/reshardfs'
uninstall-completions:
	rm -f '$(DESTDIR)$(bashcompletiondir)/reshard' '$(DESTDIR)$(bashcompletiondir)/reshardfs'
.PHONY: install-completions uninstall-completions

zshcompletiondir = $(datadir)/zsh/site-functions
dist_zshcompletion_DATA = contrib/completions/_reshard contrib/completions/_reshardfs

EXTRA_DIST += \
	.dockerignore \
	contrib/Dockerfile \
	contrib/completions/reshard.bash contrib/completions/reshardfs.bash \
	contrib/fstab.example \
	contrib/kubernetes/device-plugin.yaml contrib/kubernetes/export.yaml contrib/kubernetes/sidecar.yaml \
	contrib/slurm/epilog contrib/slurm/prolog contrib/slurm/task_prolog \
	contrib/systemd/mnt-ckpt.automount \
	contrib/systemd/mnt-ckpt.mount
