#!/bin/sh
# After an installation or upgrade of relayd. deb calls it with "configure" and the version
# before, if there was one; rpm with the number of versions installed; apk with the version
# and, at an upgrade, the one before.
set -e

case "$1" in
abort-*) exit 0 ;;
configure | *.*) [ -z "$2" ] && first=yes || first= ;;
1) first=yes ;;
*) first= ;;
esac

nologin=/usr/sbin/nologin
[ -x $nologin ] || nologin=/sbin/nologin
if ! getent passwd relayd >/dev/null; then
	if command -v useradd >/dev/null; then
		useradd --system --user-group --home-dir /var/lib/relayd --no-create-home --shell $nologin relayd
	else # Alpine
		addgroup -S relayd
		adduser -S -D -H -h /var/lib/relayd -s $nologin -G relayd relayd
	fi
fi
[ -d /var/lib/relayd ] || install -d -m 0700 -o relayd -g relayd /var/lib/relayd
# An upgrade by rpm or apk gives a file that nobody changed back to root, and relayd could not
# read it.
if [ "$(stat -c %G /etc/relayd/relayd.yaml)" = root ]; then
	chgrp relayd /etc/relayd/relayd.yaml
fi

# deb: enabled and started, as Debian does it, and restarted by an upgrade if it runs.
# rpm: as the preset of the distribution says, and restarted likewise. apk: restarted likewise.
if command -v deb-systemd-helper >/dev/null && [ "$1" = configure ]; then
	deb-systemd-helper unmask relayd.service >/dev/null || true
	if deb-systemd-helper --quiet was-enabled relayd.service; then
		deb-systemd-helper enable relayd.service >/dev/null || true
	else
		deb-systemd-helper update-state relayd.service >/dev/null || true
	fi
	if [ -d /run/systemd/system ]; then
		systemctl --system daemon-reload
		if [ -n "$first" ]; then
			deb-systemd-invoke start relayd.service || true
		else
			systemctl --system try-restart relayd.service || true
		fi
	fi
elif command -v systemctl >/dev/null; then
	[ -z "$first" ] || systemctl --no-reload preset relayd.service || true
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		[ -n "$first" ] || systemctl try-restart relayd.service || true
	fi
elif command -v rc-service >/dev/null && [ -z "$first" ]; then
	rc-service --ifstarted relayd restart || true
fi
