package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/config"
)

// configure reads the configuration file, and puts the flags that are given in place of what it says.
func (c *common) configure(cmd *cobra.Command) error {
	c.config = config.Default()
	if c.configFile != "" {
		var err error
		if c.config, err = config.Read(c.configFile); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
	}
	flags := cmd.Flags()
	for name, value := range map[string]*string{"otlp": &c.config.OTLP, "volcano": (*string)(&c.config.Volcano), "placement": &c.config.Placement} {
		if flags.Changed(name) {
			*value, _ = flags.GetString(name)
		}
	}
	for name, value := range map[string]*[]string{"scheduler-names": &c.config.SchedulerNames, "ignored-resources": &c.config.IgnoredResources} {
		if flags.Changed(name) {
			*value, _ = flags.GetStringSlice(name)
		}
	}
	if flags.Changed("pod-events") {
		c.config.PodEvents, _ = flags.GetBool("pod-events")
	}
	if c.verbose {
		c.config.Log.Level = "debug"
	}
	c.level.Set(c.config.SlogLevel())
	c.podEvents.Store(c.config.PodEvents)
	return nil
}

// fieldOf are the fields that flags win over, by the flag.
var fieldOf = map[string]string{"otlp": "otlp", "volcano": "volcano", "placement": "placement", "scheduler-names": "schedulerNames",
	"ignored-resources": "ignoredResources", "pod-events": "podEvents", "verbose": "log.level"}

// follow reads the configuration file again while the process runs.
func (c *common) follow(cmd *cobra.Command, log *slog.Logger) {
	if c.configFile == "" {
		return
	}
	first, err := config.Read(c.configFile)
	if err != nil { // it was read a moment ago
		first = c.config
	}
	byFlag := map[string]bool{}
	for flag, field := range fieldOf {
		byFlag[field] = cmd.Flags().Changed(flag)
	}
	go config.Follow(cmd.Context(), c.configFile, first, config.Live{
		"log.level": func(now config.Configuration) any { c.level.Set(now.SlogLevel()); return now.Log.Level },
		"podEvents": func(now config.Configuration) any { c.podEvents.Store(now.PodEvents); return now.PodEvents },
	}, byFlag, log)
}

// inForce returns the configuration that the process runs with now.
func (c *common) inForce() []byte {
	now := c.config
	now.Log.Level, now.PodEvents = strings.ToLower(c.level.Level().String()), c.podEvents.Load()
	return now.YAML()
}

// configCommand checks configuration files, and shows what is in force.
func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check a configuration file; show the defaults, or what a process runs with"}
	check := &cobra.Command{Use: "check FILE", Short: "Check a configuration file, and print it with all defaults", Args: cobra.ExactArgs(1)}
	check.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := config.Read(args[0])
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(c.YAML())
		return err
	}
	defaults := &cobra.Command{Use: "defaults", Short: "Print a configuration file with the defaults", Args: cobra.NoArgs}
	defaults.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := cmd.OutOrStdout().Write(config.Default().YAML())
		return err
	}
	var token string
	show := &cobra.Command{Use: "show ADDRESS", Short: "Print what the process that serves metrics at HOST:PORT runs with, flags included", Args: cobra.ExactArgs(1)}
	show.Flags().StringVar(&token, "metrics-token-file", "", "file with the bearer token that the process requires")
	show.RunE = func(cmd *cobra.Command, args []string) error {
		request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, "http://"+args[0]+"/configz", nil)
		if err != nil {
			return err
		}
		if token != "" {
			text, err := os.ReadFile(token)
			if err != nil {
				return fmt.Errorf("--metrics-token-file: %w", err)
			}
			request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(text)))
		}
		response, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status + ": " + strings.TrimSpace(string(body)))
		}
		_, err = cmd.OutOrStdout().Write(body)
		return err
	}
	cmd.AddCommand(check, defaults, show)
	return cmd
}
