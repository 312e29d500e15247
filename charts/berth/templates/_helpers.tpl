{{- define "berth.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The name of what the chart makes: short enough for a StatefulSet's pods to be labelled with it. */}}
{{- define "berth.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains (include "berth.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "berth.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The name of what is not in a namespace: two releases of one name may be in two. */}}
{{- define "berth.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "berth.fullname" .) }}
{{- end }}

{{/* The ClusterRole that spaces' accounts are bound to in their namespaces. */}}
{{- define "berth.spaceRole" -}}
{{- printf "%s-space" (include "berth.clusterName" .) }}
{{- end }}

{{/* The label by which rules are added to an aggregated ClusterRole: its name, or a hash of one that is too long for a label. */}}
{{- define "berth.aggregateTo" -}}
{{- le (len .) 63 | ternary . (sha256sum . | trunc 63) }}
{{- end }}

{{- define "berth.serviceAccount" -}}
{{- default (include "berth.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "berth.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion | toString) }}
{{- end }}
{{- end }}

{{/* The URL by which tenants reach Berth. */}}
{{- define "berth.advertise" -}}
{{- if .Values.advertise }}
{{- .Values.advertise | trimSuffix "/" }}
{{- else }}
{{- printf "https://%s.%s.svc" (include "berth.fullname" .) .Release.Namespace }}
{{- if ne (int .Values.service.port) 443 }}{{ printf ":%d" (int .Values.service.port) }}{{ end }}
{{- end }}
{{- end }}

{{- define "berth.selectorLabels" -}}
app.kubernetes.io/name: {{ include "berth.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "berth.labels" -}}
{{- include "berth.labelled" (list . (include "berth.selectorLabels" . | fromYaml)) }}
{{- end }}

{{/* The labels of an object with these selector labels, (list . LABELS): commonLabels, and those that Helm's conventions ask for. */}}
{{- define "berth.labelled" -}}
{{- $root := index . 0 }}
{{- $own := dict "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") "app.kubernetes.io/version" ($root.Values.image.tag | default $root.Chart.AppVersion | toString | trunc 63 | trimSuffix "-") "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- merge dict (index . 1) $own $root.Values.commonLabels | toYaml }}
{{- end }}

{{/* The annotations of an object, (list . OWN): its own take precedence over commonAnnotations. */}}
{{- define "berth.annotations" -}}
{{- $root := index . 0 }}
{{- with merge dict (index . 1) $root.Values.commonAnnotations }}
{{- dict "annotations" . | toYaml }}
{{- end }}
{{- end }}

{{/* The host in that URL. */}}
{{- define "berth.host" -}}
{{- (urlParse (include "berth.advertise" .)).hostname }}
{{- end }}

{{/* The Secret with the certificate of the API endpoint, empty if Berth issues it by its own CA. */}}
{{- define "berth.tlsSecret" -}}
{{- if .Values.tls.secretName }}
{{- .Values.tls.secretName }}
{{- else if .Values.tls.certManager.enabled }}
{{- printf "%s-tls" (include "berth.fullname" .) }}
{{- end }}
{{- end }}

{{/* The name of what is the operator's in the release's namespace. */}}
{{- define "berth.operator" -}}
{{- printf "%s-operator" (include "berth.fullname" .) }}
{{- end }}

{{- define "berth.operatorServiceAccount" -}}
{{- default (include "berth.operator" .) .Values.operator.serviceAccount.name }}
{{- end }}

{{/* What tells the operator's pods from Berth's: they must not be behind its Service. */}}
{{- define "berth.operatorSelectorLabels" -}}
app.kubernetes.io/name: {{ include "berth.name" . }}-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "berth.operatorLabels" -}}
{{- include "berth.labelled" (list . (include "berth.operatorSelectorLabels" . | fromYaml)) }}
{{- end }}

{{/* The labels of the pod of `helm test`. */}}
{{- define "berth.testSelectorLabels" -}}
app.kubernetes.io/name: {{ include "berth.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The objects of the values `configuration` and `tenants`, for `berth apply`. Helm itself can't install them with their definitions. */}}
{{- define "berth.objects" -}}
{{- $configuration := deepCopy (default dict .Values.configuration) }}
{{- if ne .Values.platformName "berth" }}
{{- $configuration = merge $configuration (dict "tenantDefaults" (dict "platformName" .Values.platformName)) }}
{{- end }}
{{- with $configuration }}
---
{{ dict "apiVersion" "berth.dev/v1alpha1" "kind" "BerthConfiguration" "metadata" (dict "name" "berth") "spec" . | toYaml }}
{{- end }}
{{- range $name, $spec := .Values.tenants }}
{{- $metadata := dict "name" $name }}
{{- with $.Values.commonLabels }}
{{- $_ := set $metadata "labels" . }}
{{- end }}
{{- with $.Values.commonAnnotations }}
{{- $_ := set $metadata "annotations" . }}
{{- end }}
---
{{ dict "apiVersion" "berth.dev/v1alpha1" "kind" "Tenant" "metadata" $metadata "spec" (default dict $spec) | toYaml }}
{{- end }}
{{- end }}

{{/* The spaces of the values as a list, {spaces: [{name, spec}]}: they may be a map of names and specs, too. */}}
{{- define "berth.spaces" -}}
{{- $spaces := list }}
{{- if kindIs "map" .Values.spaces }}
{{- range $name, $spec := .Values.spaces }}
{{- $spaces = append $spaces (dict "name" $name "spec" (default dict $spec)) }}
{{- end }}
{{- else }}
{{- range .Values.spaces }}
{{- $spaces = append $spaces (dict "name" .name "spec" (default dict .spec)) }}
{{- end }}
{{- end }}
{{- dict "spaces" $spaces | toYaml }}
{{- end }}

{{/* Refuses what the schema can't. */}}
{{/* Whether the pods are shards, on which an operator places spaces. Without one, there is one pod that has all spaces. */}}
{{- define "berth.shards" -}}
{{- if .Values.operator.enabled }}true{{ end }}
{{- end }}

{{/* The port at which the other shards reach one. */}}
{{- define "berth.shardsPort" -}}
7445
{{- end }}

{{- define "berth.validate" -}}
{{- if and (or .Values.autoscaling.enabled (gt (int .Values.replicas) 1)) (not .Values.operator.enabled) }}
{{- fail "replicas, autoscaling.enabled: the operator places spaces on the pods; set operator.enabled, or have one replica" }}
{{- end }}
{{- if and .Values.pools (not .Values.operator.enabled) }}
{{- fail "pools: the operator places spaces on the pods; set operator.enabled, or have no pools" }}
{{- end }}
{{- if and .Values.pools .Values.autoscaling.enabled }}
{{- fail "pools, autoscaling.enabled: the autoscaler would count the pods of pools, too; use one of them" }}
{{- end }}
{{- $pools := dict }}
{{- range .Values.pools }}
{{- if hasKey $pools .name }}
{{- fail (printf "pools: there are two with the name %s" .name) }}
{{- end }}
{{- $_ := set $pools .name true }}
{{- end }}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) }}
{{- fail "autoscaling.maxReplicas: it is less than autoscaling.minReplicas" }}
{{- end }}
{{- $ports := dict "7443" "the tenants' port" }}
{{- if include "berth.shards" . }}
{{- $_ := set $ports (include "berth.shardsPort" .) "the shards' port" }}
{{- end }}
{{- $used := list (list "metrics.port" .Values.metrics.port) }}
{{- if .Values.pods.enabled }}
{{- $used = concat $used (list (list "pods.apiPort" .Values.pods.apiPort) (list "pods.dnsPort" .Values.pods.dnsPort)) }}
{{- end }}
{{- range $used }}
{{- $port := printf "%v" (index . 1 | int) }}
{{- if hasKey $ports $port }}
{{- fail (printf "%s: %s is %s already; choose another" (index . 0) $port (get $ports $port)) }}
{{- end }}
{{- $_ := set $ports $port (index . 0) }}
{{- end }}
{{- if and .Values.service.nodePort (eq .Values.service.type "ClusterIP") }}
{{- fail "service.nodePort: a Service of type ClusterIP has none; set service.type to NodePort or LoadBalancer" }}
{{- end }}
{{- if and (ne (include "berth.sync" (list . "daemonsets")) "off") (ne (include "berth.sync" (list . "nodes")) "all") }}
{{- fail "sync.daemonsets, allowedSync.daemonsets: a DaemonSet runs a pod on each node that its space sees; show them, with nodes: all, too" }}
{{- end }}
{{- if and (ne (include "berth.sync" (list . "httproutes")) "off") (eq (include "berth.sync" (list . "gateways")) "off") }}
{{- fail "sync.httproutes, allowedSync.httproutes: a route attaches to gateways; sync them, with gateways: on, too" }}
{{- end }}
{{- $start := toDate "2006-01-02" "2000-01-01" }}{{/* the templates know a duration only as what lies between two times */}}
{{- if lt (sub (dateModify .Values.snapshots.every $start | unixEpoch) (unixEpoch $start)) 60 }}
{{- fail (printf "snapshots.every: %s: want 1m or more" .Values.snapshots.every) }}
{{- end }}
{{- if contains "." .Release.Name }}
{{- fail (printf "release name %s: a Service can't have a dot in its name; choose another" .Release.Name) }}
{{- end }}
{{- if and (or .Values.ingress.enabled .Values.tlsRoute.enabled) (not .Values.advertise) }}
{{- fail "ingress.enabled, tlsRoute.enabled: set advertise to the URL by which tenants reach the host name" }}
{{- end }}
{{- if and .Values.tlsRoute.enabled (not .Values.tlsRoute.parentRefs) }}
{{- fail "tlsRoute.parentRefs: name the Gateway that the route attaches to" }}
{{- end }}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) }}
{{- fail "tls.certManager.issuerRef.name: name the issuer" }}
{{- end }}
{{- if and (or .Values.tenants .Values.configuration) (not .Values.operator.enabled) }}
{{- fail "tenants, configuration: the operator applies them; set operator.enabled, or set them in the release that has it" }}
{{- end }}
{{- range $name, $_ := .Values.tenants }}
{{- if eq (printf "berth-%s" $name) $.Release.Namespace }}
{{- fail (printf "tenants.%s: the namespace of its space would be the release's, %s; name the tenant differently, or install into another namespace" $name $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- if hasSuffix "-dedicated" (include "berth.fullname" .) }}
{{- fail (printf "release name %s: names that end in -dedicated are those of dedicated spaces' pods; choose another" .Release.Name) }}
{{- end }}
{{- $seen := dict }}
{{- range $i, $space := (include "berth.spaces" . | fromYaml).spaces }}
{{- if hasKey $seen $space.name }}
{{- fail (printf "spaces[%d].name: %s is listed twice" $i $space.name) }}
{{- end }}
{{- $_ := set $seen $space.name true }}
{{- if eq (printf "berth-%s" $space.name) $.Release.Namespace }}
{{- fail (printf "spaces[%d].name: the space's namespace would be the release's, %s; name the space differently, or install into another namespace" $i $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What tells the pods of dedicated spaces from Berth's own: they must not be behind its Service. */}}
{{- define "berth.dedicatedLabels" -}}
app.kubernetes.io/name: {{ include "berth.name" . }}-dedicated
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The StatefulSet of which Berth makes those of dedicated spaces: it adds names, labels, and the name of the Secret. */}}
{{- define "berth.dedicatedTemplate" -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "berth.dedicatedLabels" . | nindent 4 }}
spec:
  selector: {}
  serviceName: ""
  template:
    metadata:
      labels:
        {{- include "berth.dedicatedLabels" . | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
      securityContext:
        {{- include "berth.podSecurity" . | nindent 8 }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
      - name: berth
        image: {{ include "berth.image" . }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - dedicated
        - --config=/etc/berth/config.json
        - --log-format={{ .Values.log.format }}
        - --verbosity={{ .Values.log.verbosity }}
        ports:
        - name: api
          containerPort: 7445
          protocol: TCP
        - name: commands
          containerPort: 7446
          protocol: TCP
        startupProbe:
          tcpSocket:
            port: commands
          periodSeconds: 2
          failureThreshold: 150
        livenessProbe:
          tcpSocket:
            port: commands
          periodSeconds: 10
          timeoutSeconds: 5
          failureThreshold: 6
        {{- with .Values.dedicated.resources }}
        resources:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        securityContext:
          {{- include "berth.containerSecurity" . | nindent 10 }}
        volumeMounts:
        - name: data
          mountPath: /data
        - name: tmp
          mountPath: /tmp
        - name: configuration
          mountPath: /etc/berth
          readOnly: true
      volumes:
      - name: configuration
        secret:
          defaultMode: 288
      - name: tmp
        emptyDir:
          sizeLimit: 64Mi
      {{- with .Values.dedicated.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.dedicated.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.dedicated.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.dedicated.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
  volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: data
    spec:
      accessModes: [{{ .Values.dedicated.storage.accessMode }}]
      {{- with .Values.dedicated.storage.className }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests:
          storage: {{ .Values.dedicated.storage.size }}
{{- end }}

{{- define "berth.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "berth.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What spaces may sync of a resource at most, "off" if nothing is set: (list . "KIND"). Rights and policies are for that. */}}
{{- define "berth.sync" -}}
{{- $root := index . 0 }}
{{- $resource := index . 1 }}
{{- include "berth.syncValue" (hasKey $root.Values.allowedSync $resource | ternary (get $root.Values.allowedSync $resource) (get $root.Values.sync $resource)) }}
{{- end }}

{{/* The value of a sync option, "off" if it is empty. A priority may be written as a number; "off" of pods, only as what it does. */}}
{{- define "berth.syncValue" -}}
{{- $value := . }}
{{- if eq (toString $value) "off-and-delete-pods" }}off{{ else if kindIs "string" $value }}{{ $value | default "off" }}{{ else }}{{ int64 $value }}{{ end }}
{{- end }}

{{/* Sync options, a map, as the list of the configuration file. "off" of pods is written as what it does. */}}
{{- define "berth.syncList" -}}
{{- $list := list }}
{{- range $resource, $value := . }}
{{- $said := eq (toString $value) "off-and-delete-pods" | ternary $value (include "berth.syncValue" $value) }}
{{- $list = append $list (dict "resource" $resource "value" $said) }}
{{- end }}
{{- $list | toYaml }}
{{- end }}

{{/* The configuration file. */}}
{{- define "berth.configuration" -}}
{{- $defaults := .Values.spaceDefaults }}
{{- if .Values.sync }}
{{- $defaults = merge (dict "sync" (include "berth.syncList" .Values.sync | fromYamlArray)) $defaults }}
{{- end }}
{{- $spaces := list }}
{{- range (include "berth.spaces" . | fromYaml).spaces }}
{{- $spaces = append $spaces (dict "metadata" (dict "name" .name) "spec" .spec) }}
{{- end }}
{{- dict "apiVersion" "config.berth.dev/v1alpha1" "kind" "PlatformConfiguration" "spaceDefaults" $defaults "allowedSync" (include "berth.syncList" .Values.allowedSync | fromYamlArray) "spaces" $spaces "ingressAnnotations" .Values.ingressAnnotations "reservedLabels" .Values.reservedLabels "nodeAddresses" .Values.nodeAddresses | toYaml }}
{{- end }}

{{/* The rights on classes and volumes that the sync options take, as isolation.ClassRules has them. */}}
{{- define "berth.classRules" -}}
{{- $rules := list }}
{{- $verbs := list "get" "create" "update" "delete" }}
{{- if ne (include "berth.sync" (list . "ownpriorityclasses")) "off" }}
{{- $rules = append $rules (dict "apiGroups" (list "scheduling.k8s.io") "resources" (list "priorityclasses") "verbs" $verbs) }}
{{- end }}
{{- if ne (include "berth.sync" (list . "ownstorageclasses")) "off" }}
{{- $rules = append $rules (dict "apiGroups" (list "storage.k8s.io") "resources" (list "storageclasses") "verbs" $verbs) }}
{{- end }}
{{- if ne (include "berth.sync" (list . "ownpersistentvolumes")) "off" }}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "persistentvolumes") "verbs" $verbs) }}
{{- end }}
{{- if and $rules (not .Values.admissionPolicy.enabled) }}
{{- fail "sync.ownpriorityclasses, sync.ownstorageclasses, sync.ownpersistentvolumes, or these of allowedSync: without admissionPolicy.enabled nothing holds a space to its own classes and volumes" }}
{{- end }}
{{- toYaml $rules }}
{{- end }}
