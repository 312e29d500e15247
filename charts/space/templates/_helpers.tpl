{{/* The name of the tenant, and of its space. */}}
{{- define "space.tenant" -}}
{{- default .Release.Name .Values.nameOverride }}
{{- end }}

{{/* The labels of all objects. The first one tells the tenant to Publications. */}}
{{- define "space.labels" -}}
{{- $own := dict "berth.dev/tenant" (include "space.tenant" .) "app.kubernetes.io/name" .Chart.Name "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/managed-by" .Release.Service "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- merge dict $own .Values.commonLabels | toYaml }}
{{- end }}

{{/* The annotations of an object, (list . OWN): its own take precedence over commonAnnotations. */}}
{{- define "space.annotations" -}}
{{- $root := index . 0 }}
{{- with merge dict (index . 1) $root.Values.commonAnnotations }}
{{- dict "annotations" . | toYaml }}
{{- end }}
{{- end }}

{{/* Refuses what the schema can't. */}}
{{- define "space.validate" -}}
{{- $tenant := include "space.tenant" . }}
{{- if or (gt (len $tenant) 57) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $tenant)) }}
{{- fail (printf "tenant %s: its name must be a DNS label of at most 57 characters; choose another release name, or set nameOverride" $tenant) }}
{{- end }}
{{- if has $tenant (list "system" "host" "default") }}
{{- fail (printf "tenant %s: the name is reserved; choose another release name, or set nameOverride" $tenant) }}
{{- end }}
{{- if eq $tenant .Values.parent }}
{{- fail (printf "parent: a tenant can't be its own parent, %s" $tenant) }}
{{- end }}
{{- if hasKey .Values.spaces $tenant }}
{{- fail (printf "spaces.%s: it is the space of the tenant's name; set its fields in the value space" $tenant) }}
{{- end }}
{{- range $name, $_ := .Values.publications }}
{{- if gt (len (printf "%s-%s" $tenant $name)) 63 }}
{{- fail (printf "publications.%s: the name of the Publication, %s-%s, may have at most 63 characters" $name $tenant $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The owners as a list, {owners: [...]}: they may be a map of names and what they are, too. */}}
{{- define "space.owners" -}}
{{- $owners := list }}
{{- if kindIs "map" .Values.owners }}
{{- range $name, $owner := .Values.owners }}
{{- $owners = append $owners (merge (dict "name" $name) $owner) }}
{{- end }}
{{- else }}
{{- $owners = .Values.owners }}
{{- end }}
{{- dict "owners" $owners | toYaml }}
{{- end }}

{{/* The spec of the tenant. */}}
{{- define "space.tenantSpec" -}}
{{- $spec := dict "deletionPropagation" .Values.deletionPropagation }}
{{- with (include "space.owners" . | fromYaml).owners }}
{{- $_ := set $spec "owners" . }}
{{- end }}
{{- with .Values.matchOwners }}
{{- $_ := set $spec "permissions" (dict "matchOwners" .) }}
{{- end }}
{{- range $field := list "ownerProfile" "additionalRoleBindings" "parent" "private" "cordoned" "quota" "limitRange" "hostNamespaces" "nodes" "priority" }}
{{- with get $.Values $field }}
{{- $_ := set $spec $field . }}
{{- end }}
{{- end }}
{{- $namespaces := deepCopy .Values.namespaces }}
{{- if not (kindIs "invalid" .Values.namespaceQuota) }}
{{- $_ := set $namespaces "quota" (int .Values.namespaceQuota) }}
{{- end }}
{{- with $namespaces }}
{{- $_ := set $spec "namespaces" . }}
{{- end }}
{{- with pick .Values.space "platformName" "isolation" "deletionPolicy" }}
{{- $_ := set $spec "space" . }}
{{- end }}
{{- toYaml $spec }}
{{- end }}

{{/*
The spec of a space of the tenant, (list . NAME SPEC). The space is on the platform that it says, or else on which it is, or else on that of
tenants: it can't be changed.
*/}}
{{- define "space.spaceSpec" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $spec := merge (dict "tenantName" (include "space.tenant" $root)) (index . 2) }}
{{- if not $root.Values.space.platformName }}
{{- $defaults := dig "spec" "tenantDefaults" dict (lookup "berth.dev/v1alpha1" "BerthConfiguration" "" "berth") }}
{{- $existing := dig "spec" "platformName" "" (lookup "berth.dev/v1alpha1" "Space" "" $name) }}
{{- with coalesce $spec.platformName $existing $defaults.platformName }}
{{- $_ := set $spec "platformName" . }}
{{- end }}
{{- with coalesce $spec.isolation $defaults.isolation }}
{{- $_ := set $spec "isolation" . }}
{{- end }}
{{- else if not $spec.platformName }}
{{- $_ := set $spec "platformName" $root.Values.space.platformName }}
{{- end }}
{{- toYaml $spec }}
{{- end }}
