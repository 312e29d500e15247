/* Copyright The Berth Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The shell of the busybox image. Specs expect the words of busybox's own shell, but the one that Debian builds drops
 * variables whose names are not names to a shell, such as p-data-1, which other specs print. A container that has such
 * variables gets bash, which keeps them. */
#include <ctype.h>
#include <stdio.h>
#include <unistd.h>

extern char **environ;

static int is_named(const char *variable)
{
	const char *c = variable;

	while (isalnum((unsigned char)*c) || *c == '_')
		c++;
	return c != variable && *c == '=' && !isdigit((unsigned char)*variable);
}

int main(int argc, char **argv)
{
	const char *shell = "/bin/busybox";

	(void)argc;
	for (char **variable = environ; *variable; variable++)
		if (!is_named(*variable))
			shell = "/bin/bash";
	execv(shell, argv);
	perror(shell);
	return 127;
}
