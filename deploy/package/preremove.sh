#!/bin/sh
# Before relayd is removed. deb calls it with "remove" or "upgrade", rpm with the number of
# versions that stay; an upgrade keeps the service running.
set -e

case "$1" in
remove)
	[ ! -d /run/systemd/system ] || deb-systemd-invoke stop relayd.service
	;;
0)
	[ ! -d /run/systemd/system ] || systemctl disable --now relayd.service || true
	;;
esac
