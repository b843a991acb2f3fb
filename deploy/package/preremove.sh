#!/bin/sh
# Before relayd is removed. deb calls it with "remove" or "upgrade", rpm with the number of
# versions that stay, apk with the version, but not at an upgrade. An upgrade keeps the
# service running.
set -e

case "$1" in
remove)
	[ ! -d /run/systemd/system ] || deb-systemd-invoke stop relayd.service
	;;
0)
	[ ! -d /run/systemd/system ] || systemctl disable --now relayd.service || true
	;;
*.*)
	rc-service --ifstarted relayd stop || true
	rc-update --quiet --all delete relayd >/dev/null 2>&1 || true
	;;
esac
